// openai: OpenAI's own client.
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { check, equal, plan, refused, untilBusy } from './plan.mjs';
import { result, Tale } from './tale.mjs';

const options = { apiKey: plan.key, maxRetries: 0, timeout: 60_000 };
const client = new OpenAI({ ...options, baseURL: plan.base });
const chat = { model: plan.model, messages: [{ role: 'user', content: plan.prompt }], max_tokens: plan.max_tokens, temperature: 0 };
const { max_tokens, ...free } = chat; // ends by itself
const completion = { model: plan.model, prompt: plan.prompt, max_tokens: plan.max_tokens, temperature: 0 };

await check('models', async () => {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  equal(names, [plan.model], 'the list of models');
});

await check('chat', async () => {
  const r = await client.chat.completions.create(chat);
  equal(r.choices[0].message.content, plan.text, 'text');
  equal(r.choices[0].finish_reason, 'length', 'finish_reason');
  equal(r.usage.completion_tokens, plan.max_tokens, 'completion_tokens');
});

await check('stream', async () => {
  let text = '';
  let usage;
  const reasons = [];
  for await (const c of await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
    for (const x of c.choices) {
      text += x.delta.content ?? '';
      if (x.finish_reason) reasons.push(x.finish_reason);
    }
    usage = c.usage ?? usage;
  }
  equal(text, plan.text, 'text');
  equal(reasons, ['length'], 'finish reasons');
  equal(usage?.completion_tokens, plan.max_tokens, 'completion_tokens');
});

await check('stream helper', async () => {
  const s = client.chat.completions.stream(chat);
  equal(await s.finalContent(), plan.text, 'text');
});

await check('logprobs', async () => {
  const r = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
  const content = r.choices[0].logprobs.content;
  equal(Buffer.from(content.flatMap((t) => t.bytes)).toString(), plan.text, 'the text of the tokens');
  for (const t of content) equal(t.top_logprobs[0].logprob, t.logprob, 'the likeliest token');
});

await check('n', async () => {
  const r = await client.chat.completions.create({ ...chat, temperature: plan.temperature, n: 2, seed: plan.seed });
  equal(r.choices.map((c) => c.message.content), plan.sampled, 'texts');
});

await check('stop', async () => {
  const r = await client.chat.completions.create({ ...chat, stop: plan.stop });
  equal([r.choices[0].message.content, r.choices[0].finish_reason], [plan.stopped, 'stop'], 'text and reason');
});

await check('completions', async () => {
  equal((await client.completions.create(completion)).choices[0].text, plan.text, 'text');
  let text = '';
  for await (const c of await client.completions.create({ ...completion, stream: true })) text += c.choices[0]?.text ?? '';
  equal(text, plan.text, 'streamed text');
});

await check('responses', async () => {
  const body = { model: plan.model, input: plan.prompt, max_output_tokens: plan.max_tokens, temperature: 0 };
  const r = await client.responses.create(body);
  equal(r.output_text, plan.text, 'text');
  let text = '';
  for await (const e of await client.responses.create({ ...body, stream: true })) if (e.type === 'response.output_text.delta') text += e.delta;
  equal(text, plan.text, 'streamed text');
});

await check('parse', async () => {
  const format = zodResponseFormat(Tale, 'tale');
  const tale = (await client.chat.completions.parse({ ...free, response_format: format })).choices[0].message.parsed;
  Tale.parse(tale);
  const s = client.chat.completions.stream({ ...free, response_format: format });
  equal((await s.finalChatCompletion()).choices[0].message.parsed, tale, 'what was streamed');
  const r = await client.responses.parse({ model: plan.model, input: plan.prompt, temperature: 0, text: { format: zodTextFormat(Tale, 'tale') } });
  equal(r.output_parsed, tale, 'what a response has');
});

await check('tools', async () => {
  const tool = zodFunction({ name: 'tell', description: 'Tells a tale.', parameters: Tale });
  const offer = { ...free, tools: [tool], parallel_tool_calls: false };
  const { finish_reason, message } = (await client.chat.completions.parse({ ...offer, tool_choice: 'required' })).choices[0];
  const [call] = message.tool_calls;
  equal([finish_reason, message.content, message.tool_calls.length, call.function.name], ['tool_calls', null, 1, 'tell'], 'reason, content and calls');
  Tale.parse(call.function.parsed_arguments);
  const s = client.chat.completions.stream({ ...offer, tool_choice: { type: 'function', function: { name: 'tell' } } });
  equal((await s.finalMessage()).tool_calls[0].function.arguments, call.function.arguments, 'streamed arguments');
  const messages = [...chat.messages, message, { role: 'tool', tool_call_id: call.id, content: result }];
  const answer = (await client.chat.completions.create({ ...chat, tools: [tool], messages, tool_choice: 'auto' })).choices[0].message;
  equal([!!answer.content, answer.tool_calls ?? null], [true, null], 'text and calls of the answer');

  const { name, description, parameters, strict } = tool.function;
  const response = { model: plan.model, temperature: 0, tools: [{ type: 'function', name, description, parameters, strict }] };
  const input = [{ role: 'user', content: plan.prompt }];
  const r = await client.responses.create({ ...response, input, tool_choice: 'required', parallel_tool_calls: false });
  equal(r.output.map((o) => [o.type, o.status, o.name, o.arguments]), [['function_call', 'completed', 'tell', call.function.arguments]], 'output');
  const events = client.responses.stream({ ...response, input, tool_choice: { type: 'function', name } });
  equal((await events.finalResponse()).output[0].arguments, call.function.arguments, 'streamed output');
  input.push(...r.output, { type: 'function_call_output', call_id: r.output[0].call_id, output: result });
  equal((await client.responses.create({ ...response, input, max_output_tokens: plan.max_tokens })).output_text, answer.content, 'the answer of a response');
});

await check('bad request', async () => {
  const e = await refused(() => client.chat.completions.create({ ...chat, temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError);
  equal([e.status, e.param, e.type], [400, 'temperature', 'invalid_request_error'], 'status, param and type');
});

await check('wrong key', async () => {
  const wrong = new OpenAI({ ...options, baseURL: plan.base, apiKey: 'wrong' });
  const e = await refused(() => wrong.models.list(), (e) => e instanceof OpenAI.AuthenticationError);
  equal([e.status, e.code], [401, 'invalid_api_key'], 'status and code');
});

await check('not found', async () => {
  const e = await refused(() => client.models.retrieve('nothing'), (e) => e instanceof OpenAI.NotFoundError);
  equal([e.status, e.code], [404, 'model_not_found'], 'status and code');
});

await check('busy', async () => {
  const busy = new OpenAI({ ...options, baseURL: plan.busy });
  const e = await untilBusy(() => busy.chat.completions.create(chat), (e) => e instanceof OpenAI.RateLimitError);
  equal([e.status, e.code], [429, 'queue_full'], 'status and code');
});
