-- Counts the tokens of an answer as the engine reports them, of streams with each piece.

local counts, json = require("counts"), require("json")

-- Of an answer that is not a stream, so much is kept to find a figure that two pieces share.
local KEPT = 4096
local MOST_HELD = 65536
-- The end of an event as vLLM writes it.
local FIGURES = '^{"prompt_tokens":(%d+),"total_tokens":%d+,"completion_tokens":(%d+)}}\n\n()'
local USAGE = ',"usage":{'
-- Of the one choice in an event of a stream. In a text that a model makes, quotation marks are escaped.
local CHOICE = '"choices"%s*:%s*%[%s*{%s*"index"%s*:%s*(%d+)'

local Usage = {
  -- Put before the closing brace of a request: of a name that comes twice, the last one counts.
  ASKED = ',"stream_options":{"include_usage":true,"continuous_usage_stats":true}',
  id = "usage",
  flags = filter.FLT_CFG_FL_HTX,
}

-- HAProxy makes an object of the whole transaction, of some 20 tables, for each call of a filter's
-- function, and calls twice for each event of a stream, the second time with nothing. Before, it looks
-- the function up; a number in its place is taken for what the function would return, which is how much
-- goes on. So a piece that all goes on is counted while HAProxy looks.
function Usage:__index(name)
  if name ~= "http_payload" or not self.quick or self.failed then return Usage[name] end
  local fine, length = pcall(Usage.at_once, self)
  return fine and length or Usage.http_payload
end

-- What is known of a request when it is admitted, until its filter has it: by a number, since HAProxy
-- shares no table between the two. Those whose client went away in between are overwritten.
local MOST_WAITING = 1 << 16
local waiting, last = {}, 0

function Usage.hand_over(state)
  last = last % MOST_WAITING + 1
  waiting[last] = state
  return last
end

function Usage:new()
  -- What is not there is looked up, by a call.
  return setmetatable({
    read = 0, made = 0, tail = "", state = false, seen = false, stream = false, strip = false,
    first = false, failed = false, asked = false, sent = false, quick = false,
    txn = false, message = false, pieces = 0,
  }, Usage)
end

-- Does what counts an answer. Where that fails, all of the answer goes on as the engine sent it:
-- HAProxy forwards everything where a filter returns nothing, and would keep it back for a nil.
function Usage:guarded(what, ...)
  if self.failed then return end
  local done, found = pcall(what, self, ...)
  if done then return found end
  self.failed = true
  core.Alert("the door does not count an answer: " .. tostring(found))
end

function Usage:http_headers(txn, message)
  if message:is_resp() then
    -- Without one the door itself answers.
    if not self.state then return end
    filter.register_data_filter(self, message.channel)
    self.txn, self.message = txn, message
    self:guarded(self.begin, txn)
    return
  end
  local number = txn:get_var("txn.number")
  if not number then return end
  self.state, waiting[number] = waiting[number], nil
  self.sent = self.state.asked == ""
  if self.state.asked ~= "" then filter.register_data_filter(self, message.channel) end
end

function Usage:begin(txn)
  local state = self.state
  self.stream = (txn:get_var("txn.kind") or ""):find("text/event-stream", 1, true) ~= nil
  self.strip = self.stream and state.asked:find(Usage.ASKED, 1, true) and not state.wants_each
end

-- Counts from the beginning of the answer.
function Usage:charge(txn, read, made)
  counts.charge(self.state.used, math.max(0, read - self.read), math.max(0, made - self.made))
  if read > self.read then
    self.read = read
    txn:set_var("txn.read", read)
  end
  if made > self.made then
    self.made = made
    txn:set_var("txn.made", made)
  end
end

-- Counts what an event says. Where a stream has several choices, it says so of one choice and its prompt
-- alone, which are added up; the last event, which has no choice, says it of all.
function Usage:add(txn, read, made, text)
  local choices = self.state.choices
  local choice = choices and tonumber(text:match(CHOICE))
  if choice then
    local prompt, seen = choice // choices, self.seen
    if not seen then
      seen = { read = {}, made = {}, sum_read = 0, sum_made = 0 }
      self.seen = seen
    end
    seen.sum_read = seen.sum_read + math.max(0, read - (seen.read[prompt] or 0))
    seen.sum_made = seen.sum_made + math.max(0, made - (seen.made[choice] or 0))
    seen.read[prompt] = math.max(read, seen.read[prompt] or 0)
    seen.made[choice] = math.max(made, seen.made[choice] or 0)
    read, made = seen.sum_read, seen.sum_made
  end
  self:charge(txn, read, made)
end

-- figures: the text of one usage object, in the text of an event or an answer.
function Usage:note(txn, figures, text)
  local function figure(name) return tonumber(figures:match('"' .. name .. '"%s*:%s*(%d+)')) end
  local read, made = figure("prompt_tokens"), figure("completion_tokens") or figure("output_tokens")
  -- Of messages what was cached is no part of the input.
  read = read or (figure("input_tokens") or 0)
    + (figure("cache_read_input_tokens") or 0) + (figure("cache_creation_input_tokens") or 0)
  -- An embedding has no more than its prompt, and its total.
  self:add(txn, read, made or math.max(0, (figure("total_tokens") or read) - read), text)
end

-- Of several the highest counts: what a client has an engine repeat lowers nothing. Braces within its texts
-- are none. What is not whole yet holds all that follows.
function Usage:look(txn, text)
  local at = text:find('"usage"', 1, true)
  if not at then return false end
  local found = false
  while at do
    local open, stop = text:match('^"usage"%s*:%s*(){', at), at
    if open then
      stop = json.nested_end(text, open)
      if not stop then break end
      self:note(txn, text:sub(open, stop), text)
      found = true
    end
    at = text:find('"usage"', stop + 1, true)
  end
  return found
end

-- Returns an event as the client asked for it.
function Usage:event(txn, text)
  local found = self:look(txn, self.tail .. text)
  if not found and self.state.by_pieces and text:find("^event: [%w_.]*delta\n")
    and not text:find('"signature_delta"', 1, true) then
    -- Each piece of an answer has a token or more. The stream may be broken off before it says how many.
    self.pieces = self.pieces + 1
    self:charge(txn, self.read, self.pieces)
  end
  if not found or not self.strip then return text end
  if text:find('"choices"%s*:%s*%[%s*%]') then return self.state.wants_usage and text or "" end
  return (text:gsub(',%s*"usage"%s*:%s*%b{}', "", 1))
end

-- Counts a piece that ends with the one usage in it, as nearly all do; returns whether it is one.
function Usage:plain_piece(txn, message, piece)
  local at = piece:find(USAGE, 1, true)
  if not at then return false end
  local read, made, stop = piece:match(FIGURES, at + #USAGE - 1)
  if stop ~= #piece + 1 or piece:find('"choices":[]', 1, true) then return false end
  self.tail = ""
  self:add(txn, tonumber(read), tonumber(made), piece)
  if not self.strip then return #piece end
  -- All but the brace that closes the event.
  message:remove(at - 1, stop - 3 - at)
  return #piece - (stop - 3 - at)
end

-- Counts the next piece of a stream while HAProxy looks for the function that would; returns how much
-- of it goes on, nothing where the function is needed.
function Usage.at_once(self)
  if not counts.day_goes_on() then return nil end
  local message = self.message
  local piece = message:body()
  if piece == "" then return 0 end
  return piece and Usage.plain_piece(self, self.txn, message, piece) or nil
end

function Usage:answer_piece(txn, message, piece)
  if not self.first then
    self.first = true
    txn:set_var("txn.first", math.floor((counts.clock() - self.state.began) * 1000))
  end
  if not self.stream then
    self.tail = self.tail .. piece
    self:look(txn, self.tail)
    self.tail = self.tail:sub(-KEPT)
    return #piece
  end
  local done = self:plain_piece(txn, message, piece)
  if done then return done end
  local whole = piece:match("^.*\n\n") or ""
  if message:eom() or not message.channel:may_recv() or #piece - #whole > MOST_HELD then whole = piece end
  if whole ~= "" then
    local parts, at, stop = {}, 1, nil
    while true do
      _, stop = whole:find("\n\n", at, true)
      if not stop then break end
      parts[#parts + 1] = self:event(txn, whole:sub(at, stop))
      self.tail, at = "", stop + 1
    end
    local rest = whole:sub(at)
    if rest ~= "" then
      -- Goes on before it is whole; what it says it has used may lie in it, or across the cut.
      self.tail = self.tail .. rest
      self:look(txn, self.tail)
      self.tail = self.tail:sub(-KEPT)
    end
    local events = table.concat(parts) .. rest
    if events ~= whole then message:set(events .. piece:sub(#whole + 1)) end
    whole = events
  end
  -- What is not whole yet waits: HAProxy gives it again, with what follows.
  return #whole
end

function Usage:http_payload(txn, message)
  local piece = message:body()
  local some, length = piece and piece ~= "", nil
  if message:is_resp() then
    if some then
      -- Before the request is sent, what HAProxy looks up may be for a piece of that.
      self.quick = self.stream and self.sent
      length = self:guarded(self.answer_piece, txn, message, piece)
    end
    -- HAProxy sets a hook for each call: every 10,000 steps it looks how long the call takes. What it
    -- looks up afterwards would be steps of this one, and too late, which breaks the stream off.
    if self.quick then debug.sethook() end
  elseif some and not self.asked then
    self.asked = true
    message:insert(self.state.asked, self.state.closing - 1)
  end
  -- Nothing, which is not nil.
  if length then return length end
end

function Usage:http_end(txn, message)
  if not message:is_resp() then
    self.sent = true
  elseif self.state then
    self:guarded(function() counts.flush(self.state.used) end)
  end
end

return Usage
