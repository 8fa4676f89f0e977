/** Where the browser is, in the app's own paths: the prefix of a proxy is added and taken off here. */

import { useEffect, useRef, useState } from "react";
import {
  navigate as goTo,
  usePathname as useWholePathname,
  useSearch,
} from "wouter/use-browser-location";
import { inCluster } from "@/api/chosen";
import { withoutPrefix, withPrefix } from "@/api/prefix";

export { useSearch } from "wouter/use-browser-location";

/** Go to a page of the app. */
export function navigate(address: string, options?: { replace?: boolean }): void {
  goTo(withPrefix(address), options);
}

/** The path of the page that is shown. */
export const usePathname = (): string => withoutPrefix(useWholePathname());

/** The page's state, kept in the address; a link to this very page begins anew. */
export function usePageState<State>(
  read: (search: string) => State,
  print: (state: State) => string,
) {
  const search = useSearch();
  const [state, setState] = useState(() => read(search));
  const written = useRef(search);
  useEffect(() => {
    const address = inCluster(location.pathname + print(state));
    written.current = address.slice(location.pathname.length);
    navigate(address, { replace: true });
  }, [state, print]);
  useEffect(() => {
    if (search !== written.current) setState(read(search));
  }, [search, read]);
  return [state, setState] as const;
}
