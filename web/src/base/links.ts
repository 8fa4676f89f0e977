/** Where other views live; the app fills this in for the views it has. */

export interface Links {
  /** The diagnostics of one workload. */
  diagnose?: (workload: string) => string;
}

export const links: Links = {};
