-- What each client has used: requests of the last minute, tokens of this day and this month (UTC).
-- Every worker appends to the journal of the day (journal.lua), so that counts outlive each of them.
-- Beside it lies a copy of the journal of each other door, byte by byte (peers.lua).

local journal, month = require("journal"), require("month")

local counts = { day = "", keep_days = 35 }

-- Returns a journal to read: its tokens of this day, of the days of this month before it, its requests
-- of the last minute, how far it is read.
function counts.source(ending)
  return { ending = ending, tokens = {}, before = {}, requests = {}, offset = 0 }
end

-- This door's own first.
counts.sources = { counts.source("") }

-- What this worker has seen since its start, for Prometheus: by client, and by client and refusal.
counts.totals, counts.refusals = {}, {}

local DAY, WINDOW = 86400, 60
-- Of this worker alone: an address differs from one process to the next.
local tag = ("%x"):format(os.time()) .. tostring({}):match("(%x+)$")
-- What is not written yet, by client and model; and all of it, which grows while it is walked over.
local pending, all = {}, {}
local midnight = 0

local function day_of(seconds) return os.date("!%Y-%m-%d", seconds) end

function counts.clock()
  local now = core.now()
  return now.sec + now.usec / 1000000
end

-- A model has one word in a line.
local function word(text)
  return (text:gsub("[^%w._/-]", function(one) return ("%%%02X"):format(one:byte()) end))
end

-- Returns what a client has used of a model and is not written yet.
function counts.of(client, model)
  local own = pending[client]
  if not own then
    own = {}
    pending[client] = own
  end
  model = model or "-"
  local used = own[model]
  if not used then
    used = { client = client, words = word(model), requests = 0, read = 0, made = 0, refused = 0 }
    own[model] = used
    all[#all + 1] = used
  end
  return used
end

local function totals_of(client)
  local totals = counts.totals[client]
  if not totals then
    totals = { 0, 0, 0 }
    counts.totals[client] = totals
  end
  return totals
end

function counts.refused(client, status, code)
  local key = ('client="%s",status="%d",code="%s"'):format(client, status, code)
  counts.refusals[key] = (counts.refusals[key] or 0) + 1
  -- Whoever has no key fills no disk.
  if client ~= "-" then
    local used = counts.of(client)
    used.refused = used.refused + 1
  end
end

local function drop_old(times, now)
  while times.first <= times.last and times[times.first] <= now - WINDOW do
    times[times.first] = nil
    times.first = times.first + 1
  end
end

local function note_request(source, client, when)
  local times = source.requests[client]
  if not times then
    times = { first = 1, last = 0 }
    source.requests[client] = times
  end
  -- Nobody asks here for the window of a client that uses another door alone.
  drop_old(times, when)
  times.last = times.last + 1
  times[times.last] = when
end

-- Drops what is older than the window; returns the requests in it, and when the oldest came.
local function window(client, now)
  local seen, oldest = 0, now
  for _, source in ipairs(counts.sources) do
    local times = source.requests[client]
    if times then
      drop_old(times, now)
      seen = seen + times.last - times.first + 1
      oldest = math.min(oldest, times[times.first] or now)
    end
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
  local recent = counts.clock() - WINDOW
  for when, writer, client, requests, tokens in journal.lines(whole) do
    if writer ~= tag then
      if requests > 0 and when > recent then note_request(source, client, when) end
      source.tokens[client] = (source.tokens[client] or 0) + tokens
    end
  end
  source.offset = source.offset + #whole
  return #whole
end

-- Takes over what other workers, or those before this one, have written since the last look.
local function catch_up(source)
  counts.take(source, journal.read(counts.day, source.ending, source.offset) or "")
end

-- Whether the next answer is of the day of the last one.
function counts.day_goes_on()
  local now = os.time()
  return now < midnight and now >= midnight - DAY
end

local function turn_page()
  if counts.day_goes_on() then return end
  local now = os.time()
  local last, today = counts.day, day_of(now)
  if last ~= "" then
    for number = 1, #all do counts.flush(all[number]) end
  end
  for _, source in ipairs(counts.sources) do
    if last ~= "" then journal.attempt(catch_up, source) end
    source.before = month.before(source, last, today)
    source.confirmed = nil
  end
  counts.day, midnight = today, now - now % DAY + DAY
  for _, source in ipairs(counts.sources) do
    source.tokens, source.offset = {}, 0
    journal.attempt(catch_up, source)
    journal.forget(source.ending, now, counts.keep_days)
  end
end

-- Writes what a client has used of a model since the last time.
function counts.flush(used)
  local requests, read, made, refused = used.requests, used.read, used.made, used.refused
  if requests + read + made + refused == 0 then return end
  used.requests, used.read, used.made, used.refused = 0, 0, 0, 0
  local line = ("%.3f %s %s %d %d %d %d %s\n"):format(
    counts.clock(), tag, used.client, requests, read, made, refused, used.words)
  if journal.append(counts.day, line) then return end
  -- It is tried again, with what comes until then.
  used.requests, used.read = used.requests + requests, used.read + read
  used.made, used.refused = used.made + made, used.refused + refused
end

-- Admits one request, or returns how many seconds the client has to wait.
function counts.request(client, model, limit)
  turn_page()
  local now = counts.clock()
  local seen, oldest = window(client, now)
  if limit and seen >= limit then return math.max(1, math.ceil(oldest + WINDOW - now)) end
  note_request(counts.sources[1], client, now)
  local totals = totals_of(client)
  totals[1] = totals[1] + 1
  local used = counts.of(client, model)
  used.requests = used.requests + 1
  -- Other doors are to know of it now; alone, it is written with the answer, or within half a second.
  if counts.sources[2] then counts.flush(used) end
  return nil
end

-- used: of the client and the model of an answer.
function counts.charge(used, read, made)
  if read == 0 and made == 0 then return end
  turn_page()
  local client, tokens = used.client, counts.sources[1].tokens
  local totals = totals_of(client)
  totals[2], totals[3] = totals[2] + read, totals[3] + made
  tokens[client] = (tokens[client] or 0) + read + made
  used.read, used.made = used.read + read, used.made + made
end

function counts.tokens_today(client)
  turn_page()
  local sum = 0
  for _, source in ipairs(counts.sources) do sum = sum + (source.tokens[client] or 0) end
  return sum
end

function counts.tokens_this_month(client)
  local sum = counts.tokens_today(client)
  for _, source in ipairs(counts.sources) do sum = sum + (source.before[client] or 0) end
  return sum
end

function counts.seconds_to_midnight() return DAY - os.time() % DAY end

function counts.seconds_to_next_month() return month.seconds_left(os.time()) end

-- Begins with what is written already, and goes on reading what other workers write.
function counts.start(directory, keep_days)
  journal.directory, counts.keep_days = directory, keep_days
  local look = counts.step(function()
    turn_page()
    for number = 1, #all do counts.flush(all[number]) end
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
