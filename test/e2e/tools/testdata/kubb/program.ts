import { axiosInstance } from "./client/.kubb/fetch";
import { isAxiosError } from "axios";
import { createPlant, type Error, listPlants } from "./client";

async function main(baseURL: string, token: string) {
  axiosInstance.defaults.baseURL = baseURL;
  axiosInstance.defaults.headers.common.Authorization = `Bearer ${token}`;
  axiosInstance.interceptors.response.use(undefined, retry);
  const fern = { id: 1, name: "Fern", tag: "shade" };
  await createPlant({ data: fern });
  const repeated = await createPlant({ data: fern });
  const list = await listPlants({ params: { limit: 10 } });
  const failed = await createPlant({ data: { id: 1, name: "Moss" } }).catch((e) => {
    if (isAxiosError<Error>(e) && e.response) return e.response.data;
    throw e;
  });
  if (!("error" in failed)) throw failed;
  const seen = `${repeated.name}, ${list.length} plant, error ${failed.error}`;
  await createPlant({ data: { id: 9007199254740993, name: seen } });
}

let attempts = 1;
async function retry(e: unknown) {
  if (!isAxiosError(e) || !e.config || (e.response && e.response.status < 500) || attempts++ === 4) throw e;
  await new Promise((resume) => setTimeout(resume, 1000 * Number(e.response?.headers["retry-after"] ?? 0.1)));
  return axiosInstance.request(e.config);
}

main(process.argv[2], process.argv[3]);
