/** Kinds of the Marey view as people read them. */

import type { Kind } from "@/charts/marey/kinds";
import { KINDS } from "@/charts/marey/kinds";
import { tracesTexts as texts } from "@/texts";

export const KIND_WORDS: Record<Kind, string> = {
  nothing: texts.nothing,
  compute: texts.compute,
  collective: texts.collective,
  send: texts.send,
  receive: texts.receive,
  copy: texts.copy,
  wait: texts.idlePeers,
  host: texts.idleHost,
  input: texts.idleInput,
  idle: texts.idleOther,
};

export const kindWord = (code: number): string => KIND_WORDS[KINDS[code] ?? "nothing"];
