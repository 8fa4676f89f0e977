/** REST calls: JSON in, JSON out; an error carries the server's own words (RFC 9457). */

import { inCluster } from "@/api/chosen";
import type { Document } from "@/api/documents";
import { PREFIX } from "@/api/prefix";
import { keyHeaders, SIGNED_OUT } from "@/api/sessionKey";
import { apiTexts as texts } from "@/texts";

/** Where a text that was sent is wrong, in characters of that text. */
export type Place = NonNullable<Document<"Problem">["place"]>;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly place: Place | null = null,
  ) {
    super(message);
  }
}

const ROOT = `${PREFIX}/api/v1`;

export type Query = Record<string, string | number | readonly string[] | null | undefined>;

/** Fetch a JSON document. */
export async function getJson<T>(
  path: string,
  query: Query = {},
  signal?: AbortSignal,
): Promise<T> {
  return request<T>("GET", path + queryText(query), undefined, signal);
}

/** Fetch something that is not JSON, by its media type. */
export async function getBuffer(
  path: string,
  accept: string,
  query: Query = {},
  signal?: AbortSignal,
): Promise<ArrayBuffer> {
  return (await answered("GET", path + queryText(query), accept, undefined, signal)).arrayBuffer();
}

/** Send a JSON document. */
export async function putJson<T>(path: string, body: unknown): Promise<T> {
  return request<T>("PUT", path, body);
}

/** Send a file as it is. */
export async function putFile(path: string, query: Query, file: Blob): Promise<void> {
  const response = await fetch(ROOT + inCluster(path + queryText(query)), {
    method: "PUT",
    headers: { "Content-Type": "application/octet-stream", ...keyHeaders("PUT") },
    body: file,
  });
  if (!response.ok) throw await problemOf(response);
}

/** Ask with a JSON document. */
export async function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return request<T>("POST", path, body, signal);
}

/** Change some fields of what stands at a path. */
export async function patchJson<T>(path: string, body: unknown): Promise<T> {
  return request<T>("PATCH", path, body);
}

/** Send bytes, a part of a file for instance. */
export async function putBytes<T>(
  path: string,
  query: Query,
  bytes: Blob,
  signal?: AbortSignal,
): Promise<T> {
  const response = await answered(
    "PUT",
    path + queryText(query),
    "application/json",
    bytes,
    signal,
  );
  return (await response.json()) as T;
}

/** Remove what stands at a path. */
export async function remove<T = void>(path: string): Promise<T> {
  return request<T>("DELETE", path);
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

async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const text = await (await answered(method, path, "application/json", body, signal)).text();
  return (text ? JSON.parse(text) : null) as T;
}

/** The server's answer, if it is a good one. */
async function answered(
  method: string,
  path: string,
  accept: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(ROOT + inCluster(path), {
      method,
      headers: {
        Accept: accept,
        ...keyHeaders(method),
        ...(body === undefined ? {} : { "Content-Type": mediaType(body) }),
      },
      ...(body === undefined ? {} : { body: body instanceof Blob ? body : JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, texts.theServerIsNotResponding);
  }
  if (response.status === 401) window.dispatchEvent(new Event(SIGNED_OUT));
  if (!response.ok) throw await problemOf(response);
  return response;
}

const mediaType = (body: unknown): string =>
  body instanceof Blob ? "application/octet-stream" : "application/json";

async function problemOf(response: Response): Promise<ApiError> {
  try {
    const problem = (await response.json()) as Partial<Document<"Problem">>;
    const words = problem.detail ?? problem.title;
    if (typeof words === "string")
      return new ApiError(response.status, words, problem.place ?? null);
  } catch {
    // Not a problem document: the status says what there is to say.
  }
  return new ApiError(
    response.status,
    texts.theServerAnswered(response.status, response.statusText),
  );
}
