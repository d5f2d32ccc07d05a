-- Tokens of the days of this month (UTC) before today, by client: kept from one day to the next in
-- a file beside the journals, so that no journal but that of today is read again.

local journal = require("journal")

local month = {}
local DAY = 86400

local function add(sums, tokens)
  for client, number in pairs(tokens) do sums[client] = (sums[client] or 0) + number end
end

function month.text(sums)
  local lines = {}
  for client, tokens in pairs(sums) do lines[#lines + 1] = ("%s %d\n"):format(client, tokens) end
  return table.concat(lines) .. "end\n"
end

-- Returns nil for a text that has lost its end.
function month.parse(text)
  local sums = {}
  if not text:find("end\n$") then return nil end
  for client, tokens in text:gmatch("(%S+) (%d+)\n") do sums[client] = tonumber(tokens) end
  return sums
end

function month.save(ending, day, sums)
  local path = journal.path(day, ending, "month")
  local file, why = io.open(path .. ".new", "w")
  local done = file
  if file then
    done, why = file:write(month.text(sums))
    local closed, fault = file:close()
    done, why = done and closed, why or fault
  end
  if done then done, why = os.rename(path .. ".new", path) end
  if not done then core.Alert("what clients used this month cannot be kept: " .. tostring(why)) end
end

local function kept(ending, day)
  local file = io.open(journal.path(day, ending, "month"), "r")
  if not file then return nil end
  local sums = month.parse(file:read("a"))
  file:close()
  return sums
end

local function add_journal(sums, ending, day)
  for _, _, client, _, tokens in journal.lines(journal.read(day, ending, 0) or "") do
    sums[client] = (sums[client] or 0) + tokens
  end
end

-- Of the last day of which it is known what came before, and all days since then.
local function of_files(ending, today)
  local sums, first = {}, 1
  for number = tonumber(today:sub(9)), 1, -1 do
    local found = kept(ending, today:sub(1, 8) .. ("%02d"):format(number))
    if found then
      sums, first = found, number
      break
    end
  end
  for number = first, tonumber(today:sub(9)) - 1 do
    journal.attempt(add_journal, sums, ending, today:sub(1, 8) .. ("%02d"):format(number))
  end
  return sums
end

-- Returns what a journal has of this month before today. last: the day until now, empty at the start.
function month.before(source, last, today)
  local sums = {}
  if last:sub(1, 7) == today:sub(1, 7) then
    add(sums, source.before)
    add(sums, source.tokens)
  elseif last == "" then
    sums = of_files(source.ending, today)
  end
  month.save(source.ending, today, sums)
  return sums
end

function month.seconds_left(now)
  local this, day = os.date("!%m", now), now - now % DAY
  repeat day = day + DAY until os.date("!%m", day) ~= this
  return day - now
end

return month
