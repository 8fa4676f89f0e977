/** Who is looking, and what they may do. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { getJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import { forgetSessionKey, SIGNED_OUT } from "@/api/sessionKey";

export type CurrentUser = Document<"CurrentUser">;
export type Permission = "read" | "account" | "contribute" | "operate" | "admin";

const EVERY_MS = 60_000;
const ACCOUNT = ["me"];

const askMyself = () => getJson<CurrentUser>("/me");

/** Who is looking, as the server knows them; asked again when it no longer does. */
export function useCurrentUser() {
  const client = useQueryClient();
  useEffect(() => {
    const again = () => void client.invalidateQueries({ queryKey: ACCOUNT });
    window.addEventListener(SIGNED_OUT, again);
    return () => window.removeEventListener(SIGNED_OUT, again);
  }, [client]);
  return useQuery({
    queryKey: ACCOUNT,
    queryFn: askMyself,
    staleTime: EVERY_MS,
    refetchInterval: EVERY_MS,
    retryDelay: 2000,
    retry: true,
  });
}

/** Whether whoever is looking may do this; until that is known, no. */
export function useMay(permission: Permission): boolean {
  return useCurrentUser().data?.permissions.includes(permission) ?? false;
}

/** The name under which somebody works on the cluster; empty where nobody signs in, or not by name. */
export function workingName(me: CurrentUser | undefined): string {
  return me && me.sign_in.mode !== "none" ? me.user : "";
}

/** Sign out here, then wherever the server says. */
export async function signOut(): Promise<void> {
  const target = await remove<Document<"SignedOut">>("/session");
  forgetSessionKey();
  location.assign(target.next || location.origin + location.pathname);
}
