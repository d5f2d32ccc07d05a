-- The members of a JSON object at its top level, without parsing what lies below them.
-- It accepts less than a parser does: what another reader could take differently is refused.

local json = {}

-- Who has a key may send a body of nothing but brackets, each of which takes time here.
local MOST_MARKS = 100000

local QUOTE, BACKSLASH, OPEN, CLOSE = 34, 92, { [91] = true, [123] = true }, { [93] = true, [125] = true }

local function string_end(text, at)
  -- at: position of the opening quotation mark. Returns that of the closing one, or nil.
  while true do
    at = text:find('"', at + 1, true)
    if not at then return nil end
    local before = at - 1
    while text:byte(before) == BACKSLASH do before = before - 1 end
    if (at - before) % 2 == 1 then return at end
  end
end

function json.nested_end(text, at)
  local depth, marks = 0, 0
  while at and marks < MOST_MARKS do
    local mark = text:byte(at)
    if mark == QUOTE then
      at = string_end(text, at)
      if not at then return nil end
    elseif OPEN[mark] then
      depth = depth + 1
    elseif CLOSE[mark] then
      depth = depth - 1
      if depth == 0 then return at end
    end
    marks = marks + 1
    at = text:find('["%[%]{}]', at + 1)
  end
  return nil
end

local function value_end(text, at)
  local first = text:sub(at, at)
  if first == '"' then return string_end(text, at) end
  if first == "{" or first == "[" then return json.nested_end(text, at) end
  local stop = text:find("[,}%s]", at)
  return stop and stop > at and stop - 1 or nil
end

-- Returns the members as raw text by name and the position of the closing brace; or nil and why.
-- A name that comes twice is refused where it is one of `once`: readers differ in which one counts.
function json.members(text, once)
  local at, found = text:find("%S"), {}
  if not at or text:sub(at, at) ~= "{" then return nil, "the body is not a JSON object" end
  at = text:find("%S", at + 1)
  if at and text:sub(at, at) == "}" then
    return found, at
  end
  while at and text:sub(at, at) == '"' do
    local close = string_end(text, at)
    local name = close and text:sub(at + 1, close - 1)
    if not name then break end
    if name:find("\\", 1, true) then return nil, "a name in the body is written with an escape" end
    local colon = text:match("^%s*:%s*()", close + 1)
    local stop = colon and value_end(text, colon)
    if not stop then break end
    if once[name] and found[name] then return nil, "the body holds " .. name .. " twice" end
    found[name] = text:sub(colon, stop)
    local mark = text:find("%S", stop + 1)
    local what = mark and text:sub(mark, mark)
    if what == "}" then
      if text:find("%S", mark + 1) then return nil, "text follows the JSON object of the body" end
      return found, mark
    end
    if what ~= "," then break end
    at = text:find("%S", mark + 1)
  end
  return nil, "the body is not valid JSON, or has more than " .. MOST_MARKS .. " texts, lists and mappings"
end

-- Returns where the object that begins at a position ends, and the text of its member `role`, if it is
-- one without escapes; nil where no object begins there.
function json.object_end(text, at)
  if text:sub(at, at) ~= "{" then return nil end
  local stop = json.nested_end(text, at)
  local members = stop and json.members(text:sub(at, stop), {})
  if not members then return nil end
  return stop, (members.role or ""):match('^"([^"\\]*)"$')
end

local MARKS = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

-- Returns the text of a raw JSON string; nil where it is none, or holds what no name of a model has.
function json.plain(raw)
  local inside, odd = raw and raw:match('^"(.*)"$'), false
  if not inside then return nil end
  local text = inside:gsub("\\(.)(%x?%x?%x?%x?)", function(mark, digits)
    local code = mark == "u" and #digits == 4 and tonumber(digits, 16)
    if code and code >= 32 and (code < 0xd800 or code > 0xdfff) then return utf8.char(code) end
    odd = odd or not MARKS[mark]
    return (MARKS[mark] or "") .. digits
  end)
  return not odd and text or nil
end

function json.escaped(text)
  return (text:gsub('[%c"\\]', function(one) return ("\\u%04x"):format(one:byte()) end))
end

function json.quoted(text) return '"' .. json.escaped(text) .. '"' end

return json
