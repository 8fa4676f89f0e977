/**
 * What of an execution flow is shown: namespaces that are closed stand as one node, equal subgraphs as one stack, and
 * edges between what is left.
 */

export type Evidence = "tensor" | "backward" | "communication" | "order";

export interface Sharding {
  evidence: "exact" | "inferred" | "unknown";
  slices: readonly number[];
}

/** One operator of the flow; the fields are those of the server's document. */
export interface OperatorNode {
  id: number;
  kind: string;
  name: string;
  module: string;
  stage: number;
  phase: string;
  order: number;
  /** What lies between two exchanges with other stages is a block. */
  block: number;
  micro_batch: number;
  operator: number;
  min_ms: number;
  median_ms: number;
  max_ms: number;
  slowest_rank: number;
  wait_ms: number;
  blame_s: number;
  memory_bytes: number | null;
  sharding: Sharding | null;
  stack: number;
  copy: number;
}

export interface OperatorEdge {
  source: number;
  target: number;
  evidence: string;
  long: boolean;
  hub: boolean;
}

export interface OperatorStack {
  id: number;
  name: string;
  copies: number;
  nodes: readonly number[];
  members: readonly (readonly number[])[];
}

/** A node on the screen: an operator, or a closed namespace with everything in it. */
export interface ShownNode {
  key: string;
  label: string;
  kind: string;
  stage: number;
  phase: string;
  /** Namespace that opens when this one is asked to; empty for an operator. */
  opens: string;
  lane: number;
  /** Place in the order of execution over all stages. */
  order: number;
  copies: number;
  members: OperatorNode[];
  sharding: Sharding | null;
}

export interface ShownEdge {
  source: number;
  target: number;
  evidence: Evidence;
  /** Hidden until asked for. */
  quiet: boolean;
  count: number;
}

export interface ShownFlow {
  nodes: ShownNode[];
  edges: ShownEdge[];
  lanes: { stage: number; microBatch: number }[];
  /** The node in which each operator stands, by its ID: that of the copy shown where it is one of several. */
  places: ReadonlyMap<number, number>;
}

export interface Shown {
  /** Namespaces that stand open: "stage/path". */
  open: ReadonlySet<string>;
  /** Stacks whose copies are all shown. */
  unstacked: ReadonlySet<number>;
  lanesByMicroBatch: boolean;
}

/** The name of a namespace: its stage and the path of modules. */
export const namespaceOf = (stage: number, path: string): string => `${stage}/${path}`;

/** Make the graph that stands on the screen. */
export function showFlow(
  nodes: readonly OperatorNode[],
  edges: readonly OperatorEdge[],
  stacks: readonly OperatorStack[],
  shown: Shown,
): ShownFlow {
  const stand = findStandIns(stacks, shown.unstacked);
  const copies = new Map(stacks.map((stack) => [stack.id, stack.copies]));
  const groups = new Map<string, ShownNode>();
  const groupOf = new Map<number, ShownNode>();
  const sorted = [...nodes].sort((a, b) => a.order - b.order || a.id - b.id);
  const lanes = findLanes(sorted, shown.lanesByMicroBatch);
  for (const node of sorted) {
    if (stand.has(node.id)) continue;
    const place = placeNode(node, shown.open);
    const lane = lanes.of(node);
    // The same namespace forwards and backwards, or before and after an exchange, is two nodes: time goes on.
    const key = `${lane}|${node.phase}|${node.block}|${place.key}`;
    let group = groups.get(key);
    if (!group) {
      group = makeGroup(key, node, place, lane);
      groups.set(key, group);
    }
    group.members.push(node);
    if (node.stack >= 0 && !shown.unstacked.has(node.stack))
      group.copies = Math.max(group.copies, copies.get(node.stack) ?? 1);
    groupOf.set(node.id, group);
  }
  for (const [hidden, shownId] of stand) {
    const group = groupOf.get(shownId);
    if (group) groupOf.set(hidden, group);
  }
  for (const group of groups.values())
    if (group.opens) group.sharding = findStrategy(group.members.map(({ sharding }) => sharding));
  const list = orderStages([...groups.values()], edges, groupOf);
  const index = new Map(list.map((group, i) => [group, i]));
  const places = new Map([...groupOf].map(([id, group]) => [id, index.get(group) ?? -1]));
  return { nodes: list, edges: joinEdges(edges, groupOf, index, list), lanes: lanes.list, places };
}

/**
 * Put the nodes of all stages into one order of execution: each stage keeps its own, and a receive comes after its
 * send. Where exchanges wait for each other in a circle, the stage that has done least goes on.
 */
function orderStages(
  list: ShownNode[],
  edges: readonly OperatorEdge[],
  groupOf: ReadonlyMap<number, ShownNode>,
): ShownNode[] {
  const before = new Map<ShownNode, Set<ShownNode>>();
  for (const edge of edges) {
    const [from, to] = [groupOf.get(edge.source), groupOf.get(edge.target)];
    if (!from || !to || from.stage === to.stage) continue;
    const known = before.get(to);
    if (known) known.add(from);
    else before.set(to, new Set([from]));
  }
  const stages = new Map<number, ShownNode[]>();
  for (const node of [...list].sort((a, b) => b.order - a.order)) {
    const known = stages.get(node.stage);
    if (known) known.push(node);
    else stages.set(node.stage, [node]);
  }
  const queues = [...stages].sort(([a], [b]) => a - b).map(([, queue]) => queue);
  const done = new Set<ShownNode>();
  const isReady = (node: ShownNode) => [...(before.get(node) ?? [])].every((one) => done.has(one));
  while (done.size < list.length) {
    const size = done.size;
    for (const queue of queues)
      while (queue.length > 0 && isReady(queue[queue.length - 1])) done.add(queue.pop()!);
    if (done.size > size) continue;
    const waiting = queues.filter((queue) => queue.length > 0);
    const least = waiting.reduce((a, b) => (b.length > a.length ? b : a));
    done.add(least.pop()!);
  }
  return [...done].map((node, order) => Object.assign(node, { order }));
}

/**
 * Links that only shape the picture: a node that nothing of its stage leads to stands behind the one before it, so
 * that time goes to the right in every stage.
 */
export function linkStages(
  nodes: readonly ShownNode[],
  edges: readonly ShownEdge[],
): [number, number][] {
  const reached = new Set<number>();
  for (const { source, target } of edges)
    if (nodes[source].stage === nodes[target].stage) reached.add(target);
  const last = new Map<number, number>();
  const links: [number, number][] = [];
  nodes.forEach(({ stage }, i) => {
    const previous = last.get(stage);
    if (previous !== undefined && !reached.has(i)) links.push([previous, i]);
    last.set(stage, i);
  });
  return links;
}

/** Copies that a stack hides, each with the node that stands for it. */
function findStandIns(
  stacks: readonly OperatorStack[],
  unstacked: ReadonlySet<number>,
): Map<number, number> {
  const stand = new Map<number, number>();
  for (const { id, nodes, members } of stacks) {
    if (unstacked.has(id) || nodes.length === 0) continue;
    const own = new Set(nodes);
    for (const copy of members)
      copy.forEach((member, i) => {
        if (!own.has(member) && i < nodes.length) stand.set(member, nodes[i]);
      });
  }
  return stand;
}

interface Place {
  key: string;
  label: string;
  opens: string;
}

/** Where a node stands: the first namespace of its path that is not open, or by itself. */
function placeNode(node: OperatorNode, open: ReadonlySet<string>): Place {
  // What stands in brackets is an annotation: one name, whatever is in it.
  const parts = node.module.startsWith("(")
    ? [node.module]
    : node.module
      ? node.module.split(".")
      : [];
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = parts.slice(0, depth).join(".");
    const opens = namespaceOf(node.stage, path);
    if (!open.has(opens)) return { key: opens, label: path, opens };
  }
  return { key: `#${node.id}`, label: node.name, opens: "" };
}

/**
 * The namespaces to open when a closed node is asked to: its own, and on while everything in it lies in one namespace
 * further down, so that opening always shows something new.
 */
export function listOpened({ stage, label, opens, members }: ShownNode): string[] {
  if (!opens) return [];
  const opened = [opens];
  for (let path = label; ; opened.push(namespaceOf(stage, path))) {
    const inner = new Set(members.map(({ module }) => nextPath(module, path)));
    const [only] = inner;
    if (inner.size !== 1 || !only) return opened;
    path = only;
  }
}

/** The path one level below another on the way to a module; empty where there is none. */
function nextPath(module: string, path: string): string {
  if (!module.startsWith(`${path}.`)) return "";
  const end = module.indexOf(".", path.length + 1);
  return end < 0 ? module : module.slice(0, end);
}

function makeGroup(key: string, node: OperatorNode, place: Place, lane: number): ShownNode {
  return {
    key,
    label: place.label,
    kind: place.opens ? "namespace" : node.kind,
    stage: node.stage,
    phase: node.phase,
    opens: place.opens,
    lane,
    order: node.order,
    copies: 1,
    members: [],
    sharding: place.opens ? null : node.sharding,
  };
}

/**
 * What a closed namespace says of strategies: the cut of its only operator, or the most frequent cut that is known,
 * exact ones first; null where nothing in it is known to be cut.
 */
export function findStrategy(all: readonly (Sharding | null)[]): Sharding | null {
  if (all.length === 1) return all[0];
  return listStrategies(all)[0]?.sharding ?? null;
}

/** The cuts that are known of some operators, each with how many have it: exact ones first, then the frequent ones. */
export function listStrategies(
  all: readonly (Sharding | null)[],
): { sharding: Sharding; count: number }[] {
  const found = new Map<string, { sharding: Sharding; count: number }>();
  for (const sharding of all) {
    if (!sharding || sharding.evidence === "unknown") continue;
    if (!sharding.slices.some((slices) => slices > 1)) continue;
    const key = `${sharding.evidence} ${sharding.slices.join(" ")}`;
    const known = found.get(key);
    if (known) known.count++;
    else found.set(key, { sharding, count: 1 });
  }
  const certain = ({ sharding }: { sharding: Sharding }) => Number(sharding.evidence === "exact");
  return [...found.values()].sort((a, b) => certain(b) - certain(a) || b.count - a.count);
}

function findLanes(nodes: readonly OperatorNode[], byMicroBatch: boolean) {
  const lane = (node: OperatorNode) => [node.stage, byMicroBatch ? node.micro_batch : -1] as const;
  const known = new Map<string, { stage: number; microBatch: number }>();
  for (const node of nodes) {
    const [stage, microBatch] = lane(node);
    known.set(`${stage} ${microBatch}`, { stage, microBatch });
  }
  const list = [...known.values()].sort((a, b) => a.stage - b.stage || a.microBatch - b.microBatch);
  const number = new Map(list.map(({ stage, microBatch }, i) => [`${stage} ${microBatch}`, i]));
  return { list, of: (node: OperatorNode) => number.get(lane(node).join(" ")) ?? 0 };
}

const STRENGTH: Record<string, number> = { tensor: 3, communication: 2, backward: 1, order: 0 };

/** Edges between nodes on the screen; several between the same two are one, by the best evidence. */
function joinEdges(
  edges: readonly OperatorEdge[],
  groupOf: ReadonlyMap<number, ShownNode>,
  index: ReadonlyMap<ShownNode, number>,
  list: readonly ShownNode[],
): ShownEdge[] {
  const joined = new Map<string, ShownEdge>();
  for (const edge of edges) {
    const [from, to] = [groupOf.get(edge.source), groupOf.get(edge.target)];
    if (!from || !to || from === to) continue;
    const [source, target] = [index.get(from) ?? 0, index.get(to) ?? 0];
    if (list[target].order <= list[source].order) continue;
    const evidence = (edge.evidence in STRENGTH ? edge.evidence : "order") as Evidence;
    const key = `${source} ${target}`;
    const known = joined.get(key);
    const quiet = edge.long || edge.hub;
    if (!known) joined.set(key, { source, target, evidence, quiet, count: 1 });
    else {
      known.count++;
      known.quiet &&= quiet;
      if (STRENGTH[evidence] > STRENGTH[known.evidence]) known.evidence = evidence;
    }
  }
  return [...joined.values()];
}

export type FlowMetric = "time" | "wait" | "blame" | "spread" | "memory";

/** What a node is coloured by: sums over what stands in it, times its copies. */
export function measureNode(node: ShownNode, metric: FlowMetric): number {
  const sum = (value: (member: OperatorNode) => number) =>
    node.members.reduce((total, member) => total + (value(member) || 0), 0);
  switch (metric) {
    case "time":
      return sum((member) => member.median_ms) * node.copies;
    case "wait":
      return sum((member) => member.wait_ms) * node.copies;
    case "blame":
      return sum((member) => member.blame_s);
    case "spread":
      return sum((member) => member.max_ms - member.min_ms);
    case "memory":
      return Math.max(0, ...node.members.map((member) => member.memory_bytes ?? 0));
  }
}

/** Nodes whose label, module, kind or members speak of a text. */
export function searchNodes(nodes: readonly ShownNode[], text: string): number[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const speaks = (value: string) => value.toLowerCase().includes(wanted);
  return nodes.flatMap((node, i) =>
    speaks(node.label) ||
    speaks(node.kind) ||
    node.members.some((member) => speaks(member.name) || speaks(member.module))
      ? [i]
      : [],
  );
}
