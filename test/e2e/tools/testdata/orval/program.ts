import { createPlant, listPlants } from "./client";
import { retrying } from "./retrying";

async function main(baseUrl: string, token: string) {
  globalThis.fetch = (path, init) => retrying(baseUrl + path, init); // The generated URLs have no host.
  const options = { headers: { Authorization: `Bearer ${token}` } };
  const fern = { id: 1, name: "Fern", tag: "shade" };
  await createPlant(fern, options);
  const repeated = await createPlant(fern, options);
  const list = await listPlants({ limit: 10 }, options);
  const failed = await createPlant({ id: 1, name: "Moss" }, options);
  if (repeated.status !== 200 || list.status !== 200 || failed.status !== 400) throw failed;
  const seen = `${repeated.data.name}, ${list.data.length} plant, error ${failed.data.error}`;
  await createPlant({ id: 9007199254740993, name: seen }, options);
}

main(process.argv[2], process.argv[3]);
