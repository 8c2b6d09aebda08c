import { client } from "./client/client.gen";
import { createPlant, listPlants } from "./client";
import { retrying } from "./retrying";

async function main(baseUrl: string, token: string) {
  client.setConfig({ baseUrl, auth: token, fetch: retrying });
  const fern = { id: 1, name: "Fern", tag: "shade" };
  await createPlant({ body: fern });
  const repeated = await createPlant({ body: fern });
  const list = await listPlants({ query: { limit: 10 } });
  const failed = await createPlant({ body: { id: 1, name: "Moss" } });
  const seen = `${repeated.data?.name}, ${list.data?.length} plant, error ${failed.error?.error}`;
  await createPlant({ body: { id: 9007199254740993, name: seen } });
}

main(process.argv[2], process.argv[3]);
