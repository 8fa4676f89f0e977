/** The part of JSON Schema that Marey's documents use; an error names the place and what is allowed. */

import { baseTexts as texts } from "@/texts";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  required?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean;
  items?: Schema;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  description?: string;
}

/** Every way in which a document departs from its schema; empty when it is valid. */
export function schemaErrors(document: unknown, schema: Schema): string[] {
  const errors: string[] = [];
  check(document, schema, "$");
  return errors;

  function say(place: string, value: unknown, allowed: string): void {
    errors.push(texts.notAllowed(place, shown(value), allowed));
  }

  function check(value: unknown, given: Schema, place: string): void {
    const rule = given.$ref ? (schema.$defs?.[given.$ref.replace("#/$defs/", "")] ?? {}) : given;
    if ("const" in rule && value !== rule.const)
      return say(place, value, JSON.stringify(rule.const));
    if (rule.enum && !rule.enum.includes(value)) return say(place, value, rule.enum.join(", "));
    if (rule.type && !ofType(value, rule.type))
      return say(place, value, [rule.type].flat().join(" or "));
    if (typeof value === "number") checkNumber(value, rule, place);
    else if (typeof value === "string") checkText(value, rule, place);
    else if (Array.isArray(value)) checkList(value, rule, place);
    else if (typeof value === "object" && value !== null)
      checkObject(value as Record<string, unknown>, rule, place);
  }

  function checkNumber(value: number, rule: Schema, place: string): void {
    const low = rule.minimum ?? -Infinity;
    const high = rule.maximum ?? Infinity;
    if (value < low || value > high) say(place, value, `${low} to ${high}`);
  }

  function checkText(value: string, rule: Schema, place: string): void {
    if (value.length < (rule.minLength ?? 0)) say(place, value, texts.textThatIsNotEmpty);
    if (value.length > (rule.maxLength ?? Infinity))
      say(place, value, texts.atMostCharacters(rule.maxLength ?? 0));
  }

  function checkList(value: unknown[], rule: Schema, place: string): void {
    if (value.length > (rule.maxItems ?? Infinity))
      say(place, texts.entries(value.length), texts.atMost(rule.maxItems ?? 0));
    if (rule.items) value.forEach((item, i) => check(item, rule.items as Schema, `${place}[${i}]`));
  }

  function checkObject(value: Record<string, unknown>, rule: Schema, place: string): void {
    const known = Object.keys(rule.properties ?? {});
    for (const key of rule.required ?? []) {
      if (!Object.hasOwn(value, key)) errors.push(texts.requiredIsMissing(place, key));
    }
    for (const [key, item] of Object.entries(value)) {
      const inner = Object.hasOwn(rule.properties ?? {}, key) ? rule.properties?.[key] : undefined;
      if (inner) check(item, inner, `${place}.${key}`);
      else if (rule.additionalProperties === false)
        say(`${place}.${key.slice(0, 40)}`, key, known.join(", "));
    }
  }
}

function ofType(value: unknown, type: string | string[]): boolean {
  return [type].flat().some((name) => {
    if (name === "null") return value === null;
    if (name === "array") return Array.isArray(value);
    if (name === "integer") return Number.isInteger(value);
    if (name === "number") return typeof value === "number" && Number.isFinite(value);
    if (name === "object")
      return typeof value === "object" && value !== null && !Array.isArray(value);
    return typeof value === name;
  });
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}
