import { Api, type Error, type HttpResponse } from "./client";
import { retrying } from "./retrying";

async function main(baseUrl: string, token: string) {
  const headers = { Authorization: `Bearer ${token}` };
  const { plants } = new Api({ baseUrl, baseApiParams: { headers }, customFetch: retrying });
  const fern = { id: 1, name: "Fern", tag: "shade" };
  await plants.createPlant(fern);
  const repeated = await plants.createPlant(fern);
  const list = await plants.listPlants({ limit: 10 });
  const failed = await plants.createPlant({ id: 1, name: "Moss" }).catch((r: HttpResponse<unknown, Error>) => r);
  const seen = `${repeated.data.name}, ${list.data.length} plant, error ${failed.error.error}`;
  await plants.createPlant({ id: 9007199254740993, name: seen });
}

main(process.argv[2], process.argv[3]);
