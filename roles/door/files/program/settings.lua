-- What the door is told by files: its engines, and the key that opens them.

local settings = { engines = {}, names = {} }

-- Lines of `backend name`, where a name is all to the end of the line.
function settings.read(models_file, key_file)
  for line in io.lines(models_file) do
    local backend, name = line:match("^(%S+) (.+)$")
    settings.engines[name] = backend
    settings.names[#settings.names + 1] = name
  end
  settings.key = io.open(key_file, "r"):read("a"):match("^%s*(.-)%s*$")
end

-- A client as its line says: name;requests a minute;at once;tokens a day;models, empty for no limit.
function settings.client(record)
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
    may_use = function(model) return not models or models[model] or false end,
  }
end

return settings
