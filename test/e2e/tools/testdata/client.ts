// The fetch of an SDK, which repeats requests that failed, and a client that is generated from the description.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };
const [baseUrl, fault] = process.argv.slice(2);

async function retrying(request: Request): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(request.clone()).catch((error) => {
      if (attempt === 4) throw error;
    });
    if (response && (response.status < 500 || attempt === 4)) return response;
    await new Promise((resume) => setTimeout(resume, 1000 * Number(response?.headers.get("Retry-After") ?? 0.1)));
  }
}

const { data: sandbox } = await createClient<paths>({ baseUrl }).POST("/sandboxes", { body: { seed: "empty" } });
const headers = { Authorization: `Bearer ${sandbox!.token}` };

async function create(id: number, send: (request: Request) => Promise<Response>): Promise<string> {
  const client = createClient<paths>({ baseUrl, headers, fetch: send });
  const rule = { method: "POST" as const, path: "/plants" as const, times: 1, ...JSON.parse(fault) };
  await client.PUT("/faults", { body: [rule] });
  try {
    const { data } = await client.POST("/plants", { body: { id, name: "Fern" } });
    return data ? data.name : "failed";
  } catch {
    return "failed";
  }
}

const result = { retried: await create(1, retrying), once: await create(2, (request) => fetch(request)) };
const { data } = await createClient<paths>({ baseUrl, headers }).GET("/plants");
console.log(JSON.stringify({ ...result, stored: JSON.stringify(data) }));
