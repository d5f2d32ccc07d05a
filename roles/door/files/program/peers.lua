-- The other doors of this cluster: each reads the journals of the others, so that a client's limits
-- hold over all of them, and go on to hold when one of them ends.

local counts, journal, month = require("counts"), require("journal"), require("month")

local peers = {}
-- Of an answer; whoever has more to read asks again at once.
local MOST_BYTES = 262144
-- Of another door that does not answer.
local PATIENCE_SECONDS = 2

-- Answers with this door's own journal of a day, from a byte on; or with what it has of this month
-- before that day.
function peers.journal(applet)
  local day, from = applet.qs:match("^day=(%d%d%d%d%-%d%d%-%d%d)&from=(%d+)$")
  local text = day and (journal.read(day, "", tonumber(from), MOST_BYTES) or "")
  if applet.qs == "before=" .. counts.day then text = month.text(counts.sources[1].before) end
  applet:set_status(text and 200 or 400)
  applet:add_header("content-type", "text/plain")
  text = text or ""
  applet:add_header("content-length", tostring(#text))
  applet:start_response()
  applet:send(text)
end

-- Returns what another door answers about its journal; nil and why where it does not answer.
local function fetched(peer, key, query)
  local socket = core.tcp()
  socket:settimeout(PATIENCE_SECONDS)
  local connected, why = socket:connect_ssl(peer.address, peer.port)
  if not connected then return nil, why end
  socket:send(
    ("GET /journal?%s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n"):format(
      query, peer.address, key))
  local text
  text, why = socket:receive("*a")
  socket:close()
  if not text then return nil, why end
  local status, body = text:match("^HTTP/%S+ (%d+).-\r\n\r\n(.*)$")
  if status ~= "200" then return nil, "status " .. (status or "missing") end
  if #body ~= tonumber(text:match("[Cc]ontent%-[Ll]ength: (%d+)")) then return nil, "an answer that ends early" end
  return body
end

-- Writes where the other door has it: a worker that ends and the one after it write the same bytes.
local function keep(source, day, at, text)
  local path = journal.path(day, source.ending)
  local file = io.open(path, "r+") or io.open(path, "w")
  if not file then return core.Alert("the journal of another door cannot be kept in " .. path) end
  file:seek("set", at)
  file:write(text)
  file:close()
end

-- What the other door has of this month, once a day: this one may not have been there all the time.
local function confirm(peer, source, key, day)
  local text = fetched(peer, key, "before=" .. day)
  local sums = text and month.parse(text)
  if not sums or day ~= counts.day then return end
  source.before, source.confirmed = sums, true
  month.save(source.ending, day, sums)
end

-- Reads what is new; returns whether there may be more at once.
local function follow(peer, source, key)
  local day, at = counts.day, source.offset
  -- With the byte before, the end of a line that is known.
  local from = math.max(0, at - 1)
  local text, why = fetched(peer, key, ("day=%s&from=%d"):format(day, from))
  if (why or "") ~= (source.why or "") then
    source.why = why
    core.Alert(("the door at %s:%d %s"):format(peer.address, peer.port,
      why and "cannot be asked what its clients used: " .. why or "is read again"))
  end
  -- The page was turned meanwhile.
  if not text or day ~= counts.day or at ~= source.offset then return false end
  if not source.confirmed then confirm(peer, source, key, day) end
  if at > 0 and text:sub(1, 1) ~= "\n" then
    -- Its host has lost the end of the file, or all of it.
    source.tokens, source.requests, source.offset = {}, {}, 0
    os.remove(journal.path(day, source.ending))
    return true
  end
  local new = text:sub(at - from + 1)
  local length = counts.take(source, new)
  if length > 0 then keep(source, day, at, new:sub(1, length)) end
  return length > 0 and #text == MOST_BYTES
end

-- Returns the journals of all other doors that ever were, by name: what clients have used at one that
-- is gone counts to the end of the day.
local function known(list, others)
  local found, file = {}, io.open(list, "r")
  local function add(name)
    if found[name] then return false end
    found[name] = counts.source("." .. name)
    counts.sources[#counts.sources + 1] = found[name]
    return true
  end
  if file then
    for name in file:lines() do add(name) end
    file:close()
  end
  for _, peer in ipairs(others) do
    if add(peer.name) then
      file = io.open(list, "a")
      file:write(peer.name, "\n")
      file:close()
    end
  end
  return found
end

-- others: name, address and port of each. key_file: what opens their journals. directory: of journals.
function peers.start(others, key_file, directory)
  local sources = known(directory .. "/doors", others)
  if #others == 0 then return end
  local key = io.open(key_file, "r"):read("a"):match("^%s*(.-)%s*$")
  for _, peer in ipairs(others) do
    local source = sources[peer.name]
    local look = counts.step(function() return counts.day ~= "" and follow(peer, source, key) end)
    core.register_task(function()
      while true do
        if not look() then core.msleep(500) end
      end
    end)
  end
end

return peers
