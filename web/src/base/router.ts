/** Where the browser is, in the app's own paths: the prefix of a proxy is added and taken off here. */

import { navigate as goTo, usePathname as useWholePathname } from "wouter/use-browser-location";
import { withoutPrefix, withPrefix } from "@/api/prefix";

export { useSearch } from "wouter/use-browser-location";

/** Go to a page of the app. */
export function navigate(address: string, options?: { replace?: boolean }): void {
  goTo(withPrefix(address), options);
}

/** The path of the page that is shown. */
export const usePathname = (): string => withoutPrefix(useWholePathname());
