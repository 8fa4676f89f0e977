/** The cluster that this page is about: every request, the live connection and every address name it. */

export const DEFAULT_CLUSTER = "default";
// A tab stays with its cluster from page to page; a link to share names it.
const KEY = "marey-cluster";
const PARAMETER = "cluster";

let chosen = DEFAULT_CLUSTER;
let listed: readonly string[] = [];

export const chosenCluster = (): string => chosen;

/** Every cluster that the server knows. */
export const knownClusters = (): readonly string[] => listed;

/** An address of this app or of its API, about the chosen cluster; what is as always is left out. */
export function inCluster(address: string): string {
  if (chosen === DEFAULT_CLUSTER || new RegExp(`[?&]${PARAMETER}=`).test(address)) return address;
  return `${address}${address.includes("?") ? "&" : "?"}${PARAMETER}=${encodeURIComponent(chosen)}`;
}

/** Settle on a cluster: the one that the address names, else the tab's, else the default or the first there is. */
export async function chooseCluster(
  search: string,
  tab: Pick<Storage, "getItem" | "setItem">,
  list: () => Promise<readonly string[]>,
): Promise<string> {
  listed = await list();
  const named = new URLSearchParams(search).get(PARAMETER);
  const before = tab.getItem(KEY);
  const usual =
    listed.length === 0 || listed.includes(DEFAULT_CLUSTER) ? DEFAULT_CLUSTER : listed[0];
  // One that the address names and nobody knows is asked for all the same: the server says what there is.
  chosen = named ?? (before !== null && listed.includes(before) ? before : usual);
  tab.setItem(KEY, chosen);
  return chosen;
}
