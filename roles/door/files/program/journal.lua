-- The journal of a day: a file to which every worker of this door appends, a line at a time.

local journal = { directory = "", refused = 0 }

local file, path
-- Behind part of a line the next one would not be read, and the part might be read as a whole one.
local torn = false
local said = false

function journal.path(day, ending, kind)
  return journal.directory .. "/" .. day .. "." .. (kind or "journal") .. ending
end

local function opened(wanted)
  if wanted == path and file then return file end
  if file then file:close() end
  local why
  path, file, why = wanted, io.open(wanted, "a+")
  if not file then return nil, why end
  file:setvbuf("no")
  torn = file:seek("end", -1) and file:read(1) ~= "\n"
  file:seek("end")
  return file
end

local function try(day, line)
  local one, why = opened(journal.path(day, ""))
  if not one then return false, why end
  local done
  done, why = one:write(torn and "?\n" .. line or line)
  if done then
    torn = false
  else
    -- Opened anew, it is seen whether a part of the line is there.
    one:close()
    file = nil
  end
  return done, why
end

-- Returns whether a line is written; what is not is to be tried again.
function journal.append(day, line)
  local written, why = try(day, line)
  local done = written and true or false
  if not done then journal.refused = journal.refused + 1 end
  if done == said then
    said = not done
    core.Alert(done and "the journal of the door is written again"
      or "the journal of the door cannot be written: " .. tostring(why))
  end
  return done
end

-- Walks over the lines of a text: when, by which worker, client, requests, tokens. Those of earlier
-- releases end there, others say refusals and model, too. What is no line is passed over: part of one
-- ends with a question mark, which no model has here.
function journal.lines(text)
  local following = text:gmatch("[^\n]+")
  return function()
    for line in following do
      local when, writer, client, requests, read, made, rest =
        line:match("^(%S+) (%S+) (%S+) (%d+) (%d+) (%d+)(.*)$")
      when = tonumber(when)
      if when and (rest == "" or rest:find("^ %d+ [%w._/%%-]+$")) then
        return when, writer, client, tonumber(requests), read + made
      end
    end
  end
end

function journal.forget(ending, now, keep_days)
  for back = keep_days + 1, keep_days + 31 do
    local day = os.date("!%Y-%m-%d", now - back * 86400)
    os.remove(journal.path(day, ending))
    os.remove(journal.path(day, ending, "month"))
  end
end

-- Returns what others have written from a byte on, nil where there is nothing.
function journal.read(day, ending, from, most)
  local other = io.open(journal.path(day, ending), "r")
  if not other then return nil end
  other:seek("set", from)
  local text, why = other:read(most or "a")
  other:close()
  if why then error(journal.path(day, ending) .. ": " .. why) end
  return text
end

-- Does what one file is needed for: where that cannot be read, all others are.
function journal.attempt(work, ...)
  local fine, why = pcall(work, ...)
  if not fine then core.Alert("the counting goes on after an error: " .. tostring(why)) end
end

return journal
