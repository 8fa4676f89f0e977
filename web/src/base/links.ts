/** Where other views live; the app fills this in for the views it has. */

export interface Links {
  /** The diagnostics of one workload, of the hour before a past moment where one is given. */
  diagnose?: (workload: string, atMs?: number | null) => string;
}

export const links: Links = {};
