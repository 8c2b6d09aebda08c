import createClient from "openapi-fetch";
import type { paths } from "./schema";
import { retrying } from "./retrying";

async function main(baseUrl: string, token: string) {
  const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` }, fetch: retrying });
  const fern = { id: 1, name: "Fern", tag: "shade" };
  await client.POST("/plants", { body: fern });
  const repeated = await client.POST("/plants", { body: fern });
  const list = await client.GET("/plants", { params: { query: { limit: 10 } } });
  const failed = await client.POST("/plants", { body: { id: 1, name: "Moss" } });
  const seen = `${repeated.data?.name}, ${list.data?.length} plant, error ${failed.error?.error}`;
  await client.POST("/plants", { body: { id: 9007199254740993, name: seen } });
}

main(process.argv[2], process.argv[3]);
