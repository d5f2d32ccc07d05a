-- What the door is told by files: its engines, and the key that opens them.

local MOST_KNOWN = 10000

local settings = { engines = {}, names = {}, prioritised = {} }

-- Lines of `backend name`, where a name is all to the end of the line; `backend+` where the engines
-- of that model serve by priority.
function settings.read(models_file, key_file)
  for line in io.lines(models_file) do
    local backend, plus, name = line:match("^([^%s+]+)(%+?) (.+)$")
    settings.prioritised[name] = plus ~= ""
    settings.engines[name] = backend
    settings.names[#settings.names + 1] = name
  end
  settings.key = io.open(key_file, "r"):read("a"):match("^%s*(.-)%s*$")
end

-- A client as its line says: name;requests a minute;at once;tokens a day;models;tokens a month;priority,
-- empty for no limit.
local function client_of(record)
  local fields = {}
  for field in (record .. ";"):gmatch("([^;]*);") do fields[#fields + 1] = field end
  local models
  if fields[5] ~= "" then
    models = {}
    for hex in fields[5]:gmatch("[^,]+") do
      models[hex:gsub("..", function(two) return string.char(tonumber(two, 16)) end)] = true
    end
  end
  return {
    name = fields[1],
    requests_per_minute = tonumber(fields[2]),
    at_once = tonumber(fields[3]),
    tokens_per_day = tonumber(fields[4]),
    tokens_per_month = tonumber(fields[6] or ""),
    priority = tonumber(fields[7] or "") or 0,
    may_use = function(model) return not models or models[model] or false end,
  }
end

-- Those of late, since each request asks for one.
local known, number = {}, 0

function settings.client(record)
  local client = known[record]
  if not client then
    if number >= MOST_KNOWN then known, number = {}, 0 end
    client, number = client_of(record), number + 1
    known[record] = client
  end
  return client
end

return settings
