import type { AnchorHTMLAttributes } from "react";
import { Link } from "wouter";
import { inCluster } from "@/api/chosen";

type PageLinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { href: string };

/** A link to another page of the app: a real one, which the router follows without loading everything anew. */
export function PageLink({ href, ...rest }: PageLinkProps) {
  return <Link href={inCluster(href)} {...rest} />;
}
