// The fetch of an SDK, which repeats a request that failed.
const send = fetch;

export async function retrying(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  for (let attempt = 1; ; attempt++) {
    const response = await send(request.clone()).catch((error) => {
      if (attempt === 4) throw error;
    });
    if (response && (response.status < 500 || attempt === 4)) return response;
    await new Promise((resume) => setTimeout(resume, 1000 * Number(response?.headers.get("Retry-After") ?? 0.1)));
  }
}
