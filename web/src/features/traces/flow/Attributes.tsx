import { traceAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import type { FlowMetric, Sharding, ShownNode } from "@/charts/flow/visible";
import { listStrategies, measureNode } from "@/charts/flow/visible";
import { formatNs } from "@/charts/marey/window";
import type { Flow } from "@/features/traces/documents";
import { formatBytes, shorten } from "@/features/traces/words";
import ui from "@/base/ui/ui.module.css";
import { tracesTexts as texts } from "@/texts";

/**
 * The rank that takes longest over a node's own work. Communication counts only where there is nothing else: there the
 * longest is the one that waits.
 */
export function slowestRank({ members }: ShownNode): string {
  const work = members.filter(({ kind }) => kind === "operator");
  const longer = new Map<number, number>();
  for (const { slowest_rank: rank, max_ms: most, median_ms: usual } of work.length > 0
    ? work
    : members)
    longer.set(rank, (longer.get(rank) ?? 0) + most - usual);
  const [[rank]] = [...longer].sort(([, a], [, b]) => b - a);
  return String(rank);
}

/** Everything that is known of one node. */
export function Attributes({
  node,
  run,
  step,
  where,
  onToggle,
}: {
  node: ShownNode;
  run: string;
  step: number;
  where: string;
  onToggle: () => void;
}) {
  const total = (metric: FlowMetric) => measureNode(node, metric);
  const least = node.members.reduce((sum, one) => sum + one.min_ms, 0);
  const most = node.members.reduce((sum, one) => sum + one.max_ms, 0);
  const first = node.members[0] as Flow["nodes"][number];
  const facts: [string, string][] = [
    [texts.kind, node.kind.replace(/_/g, " ")],
    [texts.stage, String(node.stage)],
    [texts.phase, node.phase || "–"],
    [texts.operators, String(node.members.length * node.copies)],
    [texts.time, formatNs(total("time") * 1e6)],
    [texts.overRanks, `${formatNs(least * 1e6)} – ${formatNs(most * 1e6)}`],
    [texts.slowestRank, slowestRank(node)],
    [texts.waiting, formatNs(total("wait") * 1e6)],
    [texts.blame, formatNs(total("blame") * 1e9)],
    [texts.memory, formatBytes(total("memory"))],
  ];
  if (node.opens) {
    const cuts = listStrategies(node.members.map(({ sharding }) => sharding));
    if (cuts.length > 0)
      facts.push([
        texts.strategies,
        cuts
          .slice(0, 6)
          .map(({ sharding, count }) => texts.strategyOf(cutWords(sharding), count * node.copies))
          .join(", "),
      ]);
  } else {
    facts.push([texts.module, first.module || "–"], [texts.shapes, first.shapes || "–"]);
    facts.push([texts.sharding, shardingWords(first.sharding)]);
  }
  return (
    <div data-testid="flow-attributes">
      <h2>{shorten(node.label, 200)}</h2>
      {node.copies > 1 && <p>{texts.copies(node.copies)}</p>}
      <dl>
        {facts.map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name}</dt>
            <dd>{shorten(value, 300)}</dd>
          </div>
        ))}
      </dl>
      {(node.opens || node.copies > 1) && (
        <button className={ui["button"]} type="button" onClick={onToggle}>
          {node.opens ? texts.openNamespace : texts.showCopies}
        </button>
      )}
      <p>
        <PageLink href={traceAddress("marey", run, { step, where })}>{texts.showInMarey}</PageLink>
      </p>
      {node.opens && (
        <ul>
          {node.members.slice(0, 12).map((one) => (
            <li key={one.id}>{shorten(one.name, 80)}</li>
          ))}
          {node.members.length > 12 && <li>{texts.more(node.members.length - 12)}</li>}
        </ul>
      )}
    </div>
  );
}

function shardingWords(sharding: Flow["nodes"][number]["sharding"]): string {
  if (sharding.evidence === "unknown") return texts.shardingUnknown;
  return `${cutWords(sharding)}. ${sharding.why}`;
}

/** The slices per dimension, and whether they are known for sure. */
function cutWords({ evidence, slices }: Sharding): string {
  const cut = `[${slices.join(", ")}]`;
  return evidence === "exact" ? texts.shardingExact(cut) : texts.shardingInferred(cut);
}
