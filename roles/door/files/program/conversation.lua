-- What the requests of one conversation have in common, so that they reach the engine whose cache
-- holds its beginning.

local json = require("json")

-- A prompt of text grows at its end, and its first turn may be short.
local PROMPT_BYTES = 256
-- A system prompt, examples, and then what the user asked first; who sends more is known by these.
local MOST_MESSAGES = 8

-- Returns the messages up to the first one of a user, as raw text. Those before are often the same for
-- every conversation of an application.
local function first_messages(raw)
  local at, read = raw:match("^%[%s*()"), 0
  while at and read < MOST_MESSAGES do
    local stop, role = json.object_end(raw, at)
    if not stop then return nil end
    read = read + 1
    if role == "user" then return raw:sub(1, stop) end
    at = raw:match("^%s*,%s*()", stop + 1)
  end
  return read > 0 and raw:sub(1, (at or #raw + 1) - 1) or nil
end

-- members: those of the body of a request, as raw text; of_input: whether its input is what is said. Returns
-- nil where nothing is cached for another request, as with embeddings.
return function(members, of_input)
  local messages, prompt = members.messages, members.prompt
  if of_input then
    local input = members.input or ""
    if input:sub(1, 1) == "[" then messages = input else prompt = input end
  end
  if messages then return first_messages(messages) end
  return prompt and prompt:sub(1, PROMPT_BYTES)
end
