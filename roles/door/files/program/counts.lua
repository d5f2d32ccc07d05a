-- What each client has used: requests of the last minute, tokens of this day (UTC).
-- The journal is a file a day to which every worker appends, so that counts outlive each of them.
-- Beside it lies a copy of the journal of each other door, byte by byte (peers.lua).

local counts = { day = "", directory = "", keep_days = 35 }

-- Returns a journal to read: its tokens of this day, its requests of the last minute, how far it is read.
function counts.source(ending) return { ending = ending, tokens = {}, requests = {}, offset = 0 } end

-- This door's own first.
counts.sources = { counts.source("") }

-- What this worker has seen since its start, for Prometheus: by client, and by client and refusal.
counts.totals, counts.refusals = {}, {}

local WINDOW = 60
-- Of this worker alone: an address differs from one process to the next.
local tag = ("%x"):format(os.time()) .. tostring({}):match("(%x+)$")
local pending = {}

local function day_of(seconds) return os.date("!%Y-%m-%d", seconds) end

function counts.journal(day, ending) return counts.directory .. "/" .. day .. ".journal" .. ending end

local function add(client, place, number)
  local totals = counts.totals[client] or { 0, 0, 0 }
  counts.totals[client] = totals
  totals[place] = totals[place] + number
end

function counts.refused(client, status, code)
  local key = ('client="%s",status="%d",code="%s"'):format(client, status, code)
  counts.refusals[key] = (counts.refusals[key] or 0) + 1
end

function counts.clock()
  local now = core.now()
  return now.sec + now.usec / 1000000
end

local function note_request(source, client, when)
  local times = source.requests[client] or { first = 1, last = 0 }
  source.requests[client] = times
  times.last = times.last + 1
  times[times.last] = when
end

-- Drops what is older than the window; returns the requests in it, and when the oldest came.
local function window(client, now)
  local seen, oldest = 0, now
  for _, source in ipairs(counts.sources) do
    local times = source.requests[client] or { first = 1, last = 0 }
    while times.first <= times.last and times[times.first] <= now - WINDOW do
      times[times.first] = nil
      times.first = times.first + 1
    end
    seen = seen + times.last - times.first + 1
    oldest = math.min(oldest, times[times.first] or now)
  end
  return seen, oldest
end

-- Returns a step of a task that reports an error and goes on: HAProxy ends a task that raises one.
function counts.step(work)
  local last
  return function()
    local fine, found = pcall(work)
    local raised = not fine and tostring(found)
    if raised and raised ~= last then core.Alert("the counting goes on after an error: " .. raised) end
    last = raised
    return fine and found
  end
end

-- Counts the whole lines of a text that others have written; returns how many bytes they take.
-- A full disk and a loss of power leave lines that are none: they are passed over.
function counts.take(source, text)
  local whole = text:match("^.*\n") or ""
  for line in whole:gmatch("[^\n]+") do
    local when, writer, client, requests, read, made =
      line:match("^(%S+) (%S+) (%S+) (%d+) (%d+) (%d+)$")
    when = tonumber(when)
    if when and writer ~= tag then
      if tonumber(requests) > 0 and when > counts.clock() - WINDOW then
        note_request(source, client, when)
      end
      source.tokens[client] = (source.tokens[client] or 0) + tonumber(read) + tonumber(made)
    end
  end
  source.offset = source.offset + #whole
  return #whole
end

-- Takes over what other workers, or those before this one, have written since the last look.
local function catch_up(source)
  local file = io.open(counts.journal(counts.day, source.ending), "r")
  if not file then return end
  file:seek("set", source.offset)
  counts.take(source, file:read("a"))
  file:close()
end

local function forget_old(now)
  for back = counts.keep_days + 1, counts.keep_days + 31 do
    for _, source in ipairs(counts.sources) do
      os.remove(counts.journal(day_of(now - back * 86400), source.ending))
    end
  end
end

local function turn_page()
  local now = counts.clock()
  local today = day_of(math.floor(now))
  if today == counts.day then return end
  counts.day = today
  forget_old(math.floor(now))
  for _, source in ipairs(counts.sources) do
    source.tokens, source.offset = {}, 0
    catch_up(source)
  end
end

local function append(line)
  local file, why = io.open(counts.journal(counts.day, ""), "a+")
  if not file then
    core.Alert("the journal of the door cannot be written: " .. tostring(why))
    return
  end
  -- Behind part of a line it would not be read.
  local torn = file:seek("end", -1) and file:read(1) ~= "\n"
  file:seek("end")
  file:write(torn and "\n" or "", line)
  file:close()
end

-- Writes what a client has used since the last time.
function counts.flush(client)
  local used = pending[client]
  if not used then return end
  pending[client] = nil
  append(("%.3f %s %s %d %d %d\n"):format(counts.clock(), tag, client, used[1], used[2], used[3]))
end

-- Admits one request, or returns how many seconds the client has to wait.
function counts.request(client, limit)
  turn_page()
  local now = counts.clock()
  local seen, oldest = window(client, now)
  if limit and seen >= limit then return math.max(1, math.ceil(oldest + WINDOW - now)) end
  note_request(counts.sources[1], client, now)
  add(client, 1, 1)
  local used = pending[client] or { 0, 0, 0 }
  pending[client] = used
  used[1] = used[1] + 1
  counts.flush(client)
  return nil
end

function counts.charge(client, read, made)
  if read == 0 and made == 0 then return end
  turn_page()
  add(client, 2, read)
  add(client, 3, made)
  local tokens = counts.sources[1].tokens
  tokens[client] = (tokens[client] or 0) + read + made
  local used = pending[client] or { 0, 0, 0 }
  pending[client] = used
  used[2], used[3] = used[2] + read, used[3] + made
end

function counts.tokens_today(client)
  turn_page()
  local sum = 0
  for _, source in ipairs(counts.sources) do sum = sum + (source.tokens[client] or 0) end
  return sum
end

function counts.seconds_to_midnight()
  return 86400 - math.floor(counts.clock()) % 86400
end

-- Begins with what is written already, and goes on reading what other workers write.
function counts.start(directory, keep_days)
  counts.directory, counts.keep_days = directory, keep_days
  local look = counts.step(function()
    local clients = {}
    for client in pairs(pending) do clients[#clients + 1] = client end
    for _, client in ipairs(clients) do counts.flush(client) end
    turn_page()
    catch_up(counts.sources[1])
  end)
  core.register_task(function()
    while true do
      look()
      core.msleep(500)
    end
  end)
end

return counts
