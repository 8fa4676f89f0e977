/** REST calls: JSON in, JSON out; an error carries the server's own words (RFC 9457). */

import { inCluster } from "@/api/chosen";

/** Where a text that was sent is wrong, in characters of that text. */
export interface Place {
  start: number;
  end: number;
  line: number;
  column: number;
  reason: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly place: Place | null = null,
  ) {
    super(message);
  }
}

const ROOT = "/api/v1";

export type Query = Record<string, string | number | readonly string[] | null | undefined>;

/** Fetch a JSON document. */
export async function getJson<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return request<T>("GET", path + queryText(query), undefined, signal);
}

/** Fetch something that is not JSON, by its media type. */
export async function getBuffer(path: string, accept: string, query: Query = {}, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await answered("GET", path + queryText(query), accept, undefined, signal)).arrayBuffer();
}

/** Send a JSON document. */
export async function putJson<T>(path: string, body: unknown): Promise<T> {
  return request<T>("PUT", path, body);
}

/** Ask with a JSON document. */
export async function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return request<T>("POST", path, body, signal);
}

/** Remove what stands at a path. */
export async function remove(path: string): Promise<void> {
  await request<unknown>("DELETE", path);
}

function queryText(query: Query): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    if (typeof value === "string" || typeof value === "number") search.set(key, String(value));
    else search.set(key, value.join(","));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const text = await (await answered(method, path, "application/json", body, signal)).text();
  return (text ? JSON.parse(text) : null) as T;
}

/** The server's answer, if it is a good one. */
async function answered(method: string, path: string, accept: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(ROOT + inCluster(path), {
      method,
      headers: { Accept: accept, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response: Response): Promise<ApiError> {
  try {
    const problem = (await response.json()) as { detail?: unknown; title?: unknown; place?: Place };
    const words = problem.detail ?? problem.title;
    if (typeof words === "string") return new ApiError(response.status, words, problem.place ?? null);
  } catch {
    // Not a problem document: the status says what there is to say.
  }
  return new ApiError(response.status, `The server answered ${response.status} ${response.statusText}.`);
}
