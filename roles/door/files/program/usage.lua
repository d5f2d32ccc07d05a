-- Counts the tokens of an answer as the engine reports them, of streams with each piece.

local counts = require("counts")

-- Of an answer that is not a stream, so much is kept to find a figure that two pieces share.
local KEPT = 4096
local MOST_HELD = 65536

local Usage = {
  -- Put before the closing brace of a request: of a name that comes twice, the last one counts.
  ASKED = ',"stream_options":{"include_usage":true,"continuous_usage_stats":true}',
  id = "usage",
  flags = filter.FLT_CFG_FL_HTX,
}
Usage.__index = Usage

function Usage:new()
  return setmetatable({ read = 0, made = 0, tail = "" }, Usage)
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
  local is_answer = message.channel:is_resp()
  if not txn:get_var("txn.backend") or not (is_answer or txn:get_var("txn.closing")) then return end
  filter.register_data_filter(self, message.channel)
  if is_answer then self:guarded(self.begin, txn) end
end

function Usage:begin(txn)
  self.client = txn:get_var("txn.client")
  self.stream = (txn:get_var("txn.kind") or ""):find("text/event-stream", 1, true) ~= nil
  self.strip = self.stream and txn:get_var("txn.closing") and not txn:get_var("txn.wants_each")
  self.keep_last = txn:get_var("txn.wants_usage")
end

-- figures: the text of one usage object, which counts from the beginning of the answer.
function Usage:note(txn, figures)
  local function figure(name) return tonumber(figures:match('"' .. name .. '"%s*:%s*(%d+)')) end
  local read = figure("prompt_tokens") or 0
  -- An embedding has no more than its prompt, and its total.
  local made = figure("completion_tokens") or math.max(0, (figure("total_tokens") or read) - read)
  counts.charge(self.client, math.max(0, read - self.read), math.max(0, made - self.made))
  self.read, self.made = math.max(self.read, read), math.max(self.made, made)
  txn:set_var("txn.read", self.read)
  txn:set_var("txn.made", self.made)
end

-- Of several the highest counts: what a client has an engine repeat lowers nothing.
function Usage:look(txn, text)
  local found = false
  for figures in text:gmatch('"usage"%s*:%s*(%b{})') do
    self:note(txn, figures)
    found = true
  end
  return found
end

-- Returns an event as the client asked for it.
function Usage:event(txn, text)
  if not self:look(txn, text) or not self.strip then return text end
  if text:find('"choices"%s*:%s*%[%s*%]') then return self.keep_last and text or "" end
  return (text:gsub(',%s*"usage"%s*:%s*%b{}', "", 1))
end

function Usage:answer_piece(txn, message, piece)
  if not self.first then
    self.first = true
    txn:set_var("txn.first", math.floor((counts.clock() - txn:get_var("txn.began") / 1000) * 1000))
  end
  if not self.stream then
    self.tail = self.tail .. piece
    self:look(txn, self.tail)
    self.tail = self.tail:sub(-KEPT)
    return #piece
  end
  local whole = piece:match("^.*\n\n") or ""
  if message:eom() or not message.channel:may_recv() or #piece - #whole > MOST_HELD then whole = piece end
  if whole ~= "" then
    local events = whole:gsub("(.-\n\n)", function(event) return self:event(txn, event) end)
    if events ~= whole then message:set(events .. piece:sub(#whole + 1)) end
    whole = events
  end
  -- What is not whole yet waits: HAProxy gives it again, with what follows.
  return #whole
end

function Usage:http_payload(txn, message)
  local piece = message:body()
  if not piece or piece == "" then return end
  if message.channel:is_resp() then return self:guarded(self.answer_piece, txn, message, piece) end
  local closing = txn:get_var("txn.closing")
  if closing and not self.asked then
    self.asked = true
    message:insert(Usage.ASKED, closing - 1)
  end
end

function Usage:http_end(txn, message)
  if message.channel:is_resp() and self.client then self:guarded(function() counts.flush(self.client) end) end
end

return Usage
