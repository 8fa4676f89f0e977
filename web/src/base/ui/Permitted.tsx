import type { ReactNode } from "react";
import type { Permission } from "@/base/account";
import { useMay } from "@/base/account";

/** Something only for those who may do it: others see no button that the server would refuse. */
export function Permitted({ to, children }: { to: Permission; children: ReactNode }) {
  return useMay(to) ? children : null;
}
