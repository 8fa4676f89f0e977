/** The metric catalogue and the attributes made of it, fetched once. */

import { getJson } from "@/api/client";
import type { Attribute, Metric } from "@/base/attributes";
import { attributeList } from "@/base/attributes";

interface MetricDocument {
  metric: string;
  label: string;
  unit: string;
  entity: string;
  kind: string;
  minimum: number;
  maximum: number;
  resolution: number;
  description: string;
  live: object | null;
}

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
