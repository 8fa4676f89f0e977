/** A draft while it is typed: checked and counted by the server, the answer to an older text thrown away. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Document } from "@/api/documents";
import type { Place } from "@/api/client";
import { ApiError, getJson } from "@/api/client";
import type { PreviewDocument } from "@/base/verdicts/documents";
import { previewRule } from "@/base/verdicts/documents";

export type CheckDocument = Document<"CheckedRule">;

// A pause in typing, not every key.
const CHECK_AFTER_MS = 120;
const COUNT_AFTER_MS = 300;
const COUNT_AGAIN_MS = 5_000;

/** A value once it has rested. */
function useRested<T>(value: T, ms: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return rested;
}

export interface Checked {
  /** The server's reading of exactly this text, once it has come. */
  reading: CheckDocument | null;
  /** What is wrong with this text; the place counts in characters of the page (UTF-16). */
  error: { message: string; place: Place | null } | null;
  /** Nothing has been said of this text yet. */
  pending: boolean;
}

/** Whether a text is a rule, and what it means. */
export function useCheck(text: string): Checked {
  const rested = useRested(text, CHECK_AFTER_MS);
  const check = useQuery({
    queryKey: ["rule-check", rested],
    queryFn: ({ signal }) => getJson<CheckDocument>("/rules-check", { when: rested }, signal),
    enabled: rested.trim() !== "",
    staleTime: Infinity,
    retry: false,
  });
  if (rested !== text) return { reading: null, error: null, pending: true };
  if (text.trim() === "") return { reading: null, error: null, pending: false };
  if (check.error) {
    const place = check.error instanceof ApiError ? check.error.place : null;
    return {
      reading: null,
      error: { message: place?.reason ?? check.error.message, place: place && inPage(text, place) },
      pending: false,
    };
  }
  return { reading: check.data ?? null, error: null, pending: check.isFetching };
}

/** The server counts characters; a string of the page counts UTF-16 units. */
export function inPage(text: string, place: Place): Place {
  const letters = Array.from(text);
  const unit = (character: number) => letters.slice(0, character).join("").length;
  return { ...place, start: unit(place.start), end: unit(place.end) };
}

/** Who matches a text right now, counted anew while it stands. */
export function usePreview(
  text: string,
  valid: boolean,
): { preview: PreviewDocument | null; counting: boolean; problem: string | null } {
  const rested = useRested(text, COUNT_AFTER_MS);
  const ready = valid && rested === text;
  const query = useQuery({
    queryKey: ["lens", rested],
    queryFn: ({ signal }) => previewRule(rested, signal),
    enabled: ready,
    refetchInterval: COUNT_AGAIN_MS,
    retry: (count, error) => error instanceof ApiError && error.status === 409 && count < 20,
    retryDelay: 1_000,
    placeholderData: keepPreviousData,
  });
  if (!valid) return { preview: null, counting: false, problem: null };
  return {
    preview: query.data ?? null,
    counting: !ready || query.isPending || query.isPlaceholderData,
    problem: query.error?.message ?? query.failureReason?.message ?? null,
  };
}
