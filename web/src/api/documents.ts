/** The server's documents by name, as its OpenAPI document describes them. */

import type { components } from "@/api/schema";

export type Document<Name extends keyof components["schemas"]> = components["schemas"][Name];
