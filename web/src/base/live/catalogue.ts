/** The metric catalogue and the attributes made of it, fetched once. */

import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import type { Attribute, Metric } from "@/base/attributes";
import { attributeList } from "@/base/attributes";

type MetricDocument = Document<"MetricDocument">;

export interface Catalogue {
  metrics: Metric[];
  /** Every attribute by id, metrics that travel live among them. */
  attributes: ReadonlyMap<string, Attribute>;
}

/** Ask the server what it measures. */
export async function fetchCatalogue(): Promise<Catalogue> {
  const documents = await getJson<MetricDocument[]>("/metrics");
  const metrics = documents.map((one): Metric => ({
    id: one.metric,
    label: one.label,
    unit: one.unit,
    entity: one.entity,
    kind: one.kind,
    min: one.minimum,
    max: one.maximum,
    resolution: one.resolution,
    description: one.description,
  }));
  const live = new Set(documents.filter((one) => one.live !== null).map((one) => one.metric));
  const attributes = attributeList(metrics.filter((metric) => live.has(metric.id)));
  return { metrics, attributes: new Map(attributes.map((attribute) => [attribute.id, attribute])) };
}
