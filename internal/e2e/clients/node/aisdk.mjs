// @ai-sdk/openai-compatible: the AI SDK, which checks every answer against a schema.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, streamText } from 'ai';
import { check, equal, plan, refused, untilBusy } from './plan.mjs';

const make = (baseURL, apiKey) => createOpenAICompatible({ name: 'talf', baseURL, apiKey, includeUsage: true });
const common = { prompt: plan.prompt, maxOutputTokens: plan.max_tokens, temperature: 0, maxRetries: 0 };
const model = make(plan.base, plan.key).chatModel(plan.model);

await check('chat', async () => {
  const r = await generateText({ ...common, model });
  equal([r.text, r.finishReason], [plan.text, 'length'], 'text and reason');
  equal(r.usage.outputTokens, plan.max_tokens, 'output tokens');
});

await check('stream', async () => {
  const r = streamText({ ...common, model, onError: () => {} });
  let text = '';
  for await (const t of r.textStream) text += t;
  equal(text, plan.text, 'text');
  equal(await r.finishReason, 'length', 'reason');
  equal((await r.usage).outputTokens, plan.max_tokens, 'output tokens');
});

await check('stop', async () => {
  const r = await generateText({ ...common, model, stopSequences: [plan.stop] });
  equal([r.text, r.finishReason], [plan.stopped, 'stop'], 'text and reason');
});

await check('completions', async () => {
  const r = await generateText({ ...common, model: make(plan.base, plan.key).completionModel(plan.model), prompt: plan.prompt });
  if (!r.text) throw new Error('no text'); // the SDK writes a template of its own around the prompt
});

await check('bad request', async () => {
  const e = await refused(() => generateText({ ...common, model, temperature: 9 }), (e) => APICallError.isInstance(e));
  equal([e.statusCode, e.data?.error?.param], [400, 'temperature'], 'status and param');
});

await check('wrong key', async () => {
  const e = await refused(() => generateText({ ...common, model: make(plan.base, 'wrong').chatModel(plan.model) }), (e) => APICallError.isInstance(e));
  equal(e.statusCode, 401, 'status');
});

await check('busy', async () => {
  const busy = make(plan.busy, plan.key).chatModel(plan.model);
  const e = await untilBusy(() => generateText({ ...common, model: busy }), (e) => APICallError.isInstance(e));
  equal([e.statusCode, e.isRetryable], [429, true], 'status and whether to try again');
});
