// @ai-sdk/openai-compatible: the AI SDK, which checks every answer against a schema.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { check, equal, plan, refused, untilBusy } from './plan.mjs';
import { result, Tale } from './tale.mjs';

const make = (baseURL, apiKey) => createOpenAICompatible({ name: 'talf', baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
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

await check('object', async () => {
  const ask = { prompt: plan.prompt, temperature: 0, maxRetries: 0, model, output: Output.object({ schema: Tale }) };
  const tale = (await generateText(ask)).output;
  Tale.parse(tale);
  equal(await streamText({ ...ask, onError: () => {} }).output, tale, 'what was streamed');
});

await check('tools', async () => {
  const told = [];
  const tell = tool({
    description: 'Tells a tale.',
    inputSchema: Tale,
    execute: async (tale) => {
      told.push(Tale.parse(tale));
      return result;
    },
  });
  const ask = {
    prompt: plan.prompt, temperature: 0, maxRetries: 0, model, tools: { tell }, stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'tell' } : 'auto' }),
    maxOutputTokens: 1000,
    stopSequences: [plan.stop],
  };
  const r = await generateText(ask);
  equal([r.steps.length, r.steps[0].finishReason, r.steps[0].toolResults[0].output, !!r.text], [2, 'tool-calls', result, true], 'steps');
  const s = streamText({ ...ask, onError: () => {} });
  await s.consumeStream();
  equal([await s.text, told.length], [r.text, 2], 'streamed answer and calls');
  equal(told[1], told[0], 'the streamed call');
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
