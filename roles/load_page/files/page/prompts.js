// Prompts of a wanted length in tokens, all different, so that no prefix cache answers for the engine.

// One token each for most tokenizers.
const WORDS = (
  "time year people way day man thing woman life child world school state family student group " +
  "country problem hand part place case week company system program question work number night " +
  "point home water room mother area money story fact month lot right study book eye job word " +
  "business issue side kind head house service friend father power hour game line end member law"
).split(" ");
// So many make two equal prompts unlikely even where no length was asked for.
export const FEWEST_WORDS = 4;

/** Return a question with so many random words before it. */
export function prompt(question, words) {
  const picked = crypto.getRandomValues(new Uint32Array(Math.max(words, FEWEST_WORDS)));
  return `${Array.from(picked, (one) => WORDS[one % WORDS.length]).join(" ")}\n\n${question}`;
}

/**
 * Return how many words make a prompt of `tokens`, and how many tokens such a prompt really has.
 *
 * measure(words) asks the engine how many tokens a prompt with so many words is.
 */
export async function wordsFor(tokens, measure) {
  const shortest = await measure(FEWEST_WORDS);
  if (tokens <= shortest) return { words: FEWEST_WORDS, tokens: shortest };
  const probe = FEWEST_WORDS + Math.min(tokens - shortest, 256);
  const each = ((await measure(probe)) - shortest) / (probe - FEWEST_WORDS);
  const words = FEWEST_WORDS + Math.round((tokens - shortest) / each);
  return { words, tokens: await measure(words) };
}
