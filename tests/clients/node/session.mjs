// One task of a session, read as JSON from stdin; its result goes to stdout as JSON.
import OpenAI from "openai";

const tasks = {
  async models(client) {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    for (const id of ids) await client.models.retrieve(id);
    return ids;
  },

  chat: (client, { bodies: [body] }) => client.chat.completions.create(body),

  stream: (client, { bodies: [body] }) =>
    client.chat.completions
      .stream({ ...body, stream_options: { include_usage: true } })
      .finalChatCompletion(),

  async tools(client, { bodies: [body], result }) {
    const said = (await client.chat.completions.create(body)).choices[0].message;
    const [call] = said.tool_calls;
    const messages = [
      ...body.messages,
      said,
      { role: "tool", tool_call_id: call.id, content: result },
    ];
    const { tool_choice, parallel_tool_calls, ...rest } = body;
    const answer = await client.chat.completions.create({ ...rest, messages });
    return [call, answer.choices[0].message];
  },

  async parsed(client, { bodies: [body] }) {
    const completion = await client.chat.completions.parse(body);
    return JSON.parse(completion.choices[0].message.content);
  },

  async abandon(client, { bodies: [body], pieces }) {
    const stream = await client.chat.completions.create({ ...body, stream: true });
    let seen = 0;
    for await (const _ of stream) {
      seen += 1;
      if (seen === pieces) break; // which aborts the request
    }
    return seen;
  },

  together: (client, { bodies }) =>
    Promise.all(bodies.map((body) => client.chat.completions.create(body))),

  async refusal(client, { bodies: [body] }) {
    try {
      await client.chat.completions.create(body);
    } catch (error) {
      if (!(error instanceof OpenAI.APIError)) throw error;
      const { status, code, param } = error;
      return { kind: error.constructor.name, status, code: code ?? null, param: param ?? null };
    }
    throw new Error("the request was not refused");
  },
};

let text = "";
for await (const piece of process.stdin) text += piece;
const order = JSON.parse(text);
const client = new OpenAI({ baseURL: order.url, apiKey: order.key, maxRetries: 0 });
console.log(JSON.stringify(await tasks[order.task](client, order)));
