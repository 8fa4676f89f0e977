/** The few controls every view uses. */

import { Popover as RadixPopover } from "radix-ui";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { useEffect, useId, useState } from "react";
import { sparklinePath } from "@/base/sparkline";
import type { IconName } from "@/base/ui/Icon";
import { Icon } from "@/base/ui/Icon";
import ui from "@/base/ui/ui.module.css";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement>;

export function IconButton({
  icon,
  label,
  pressed,
  ...rest
}: ButtonProps & { icon: IconName; label: string; pressed?: boolean }) {
  return (
    <button
      type="button"
      className={ui["icon-button"]}
      aria-label={label}
      title={label}
      {...(pressed === undefined ? {} : { "aria-pressed": pressed })}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}

/** A button that opens a panel beside itself; Escape and a click outside close it. */
export function Popover({
  trigger,
  children,
  label,
  side = "bottom",
  align = "start",
  defaultOpen = false,
}: {
  trigger: ReactNode;
  children: ReactNode;
  label: string;
  side?: "bottom" | "right" | "left" | "top";
  align?: "start" | "end";
  /** Whether it is open when it appears. */
  defaultOpen?: boolean;
}) {
  return (
    <RadixPopover.Root defaultOpen={defaultOpen}>
      <RadixPopover.Trigger asChild>{trigger}</RadixPopover.Trigger>
      <RadixPopover.Portal>
        <RadixPopover.Content
          className={ui["popover"]}
          side={side}
          align={align}
          sideOffset={6}
          collisionPadding={8}
          // In the window also while its control is scrolled out of it.
          sticky="always"
          aria-label={label}
          // Focus goes back to the trigger, unless another panel has it already: that would close.
          onCloseAutoFocus={(event) => {
            if (document.activeElement !== document.body) event.preventDefault();
          }}
        >
          {children}
        </RadixPopover.Content>
      </RadixPopover.Portal>
    </RadixPopover.Root>
  );
}

export const PopoverClose = RadixPopover.Close;

export interface Option {
  value: string;
  label: string;
  group?: string;
}

export function Select({
  label,
  value,
  options,
  onChange,
  hideLabel,
}: {
  label: string;
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
  hideLabel?: boolean;
}) {
  const id = useId();
  const groups = [...new Set(options.map((option) => option.group ?? ""))];
  const items = (group: string) =>
    options
      .filter((option) => (option.group ?? "") === group)
      .map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ));
  return (
    <div className={ui["field"]}>
      <label htmlFor={id} className={hideLabel ? ui["visually-hidden"] : undefined}>
        {label}
      </label>
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
        {groups.map((group) =>
          group ? (
            <optgroup key={group} label={group}>
              {items(group)}
            </optgroup>
          ) : (
            items(group)
          ),
        )}
      </select>
    </div>
  );
}

export function Slider({
  label,
  value,
  min,
  max,
  step = 1,
  unit = "",
  onChange,
}: {
  label: string;
  value: number;
  min: number;
  max: number;
  step?: number;
  unit?: string;
  onChange: (value: number) => void;
}) {
  const id = useId();
  return (
    <div className={`${ui["field"]} ${ui["slider"]}`}>
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        onChange={(event) => onChange(Number(event.target.value))}
      />
      <output htmlFor={id}>
        {value}
        {unit && `\u2009${unit}`}
      </output>
    </div>
  );
}

export function NumberField({
  label,
  value,
  placeholder,
  onChange,
}: {
  label: string;
  value: number | null;
  placeholder: string;
  onChange: (value: number | null) => void;
}) {
  const id = useId();
  return (
    <div className={ui["field"]}>
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="number"
        value={value ?? ""}
        placeholder={placeholder}
        onChange={(event) =>
          onChange(event.target.value === "" ? null : Number(event.target.value))
        }
      />
    </div>
  );
}

export function Toggle({
  label,
  checked,
  onChange,
}: {
  label: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
}) {
  return (
    <label className={ui["toggle"]}>
      <input
        type="checkbox"
        checked={checked}
        onChange={(event) => onChange(event.target.checked)}
      />
      {label}
    </label>
  );
}

/** One of a few, side by side. */
export function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly { value: T; label: string; icon?: IconName }[];
  onChange: (value: T) => void;
}) {
  return (
    <div className={ui["field"]}>
      <span id={`${label}-label`}>{label}</span>
      <div className={ui["choice"]} role="group" aria-labelledby={`${label}-label`}>
        {options.map((option) => (
          <button
            key={option.value}
            type="button"
            aria-pressed={option.value === value}
            title={option.label}
            aria-label={option.label}
            onClick={() => onChange(option.value)}
          >
            {option.icon ? <Icon name={option.icon} /> : option.label}
          </button>
        ))}
      </div>
    </div>
  );
}

export function Sparkline({
  values,
  width = 64,
  height = 18,
  range,
  label,
}: {
  values: readonly (number | null)[];
  width?: number;
  height?: number;
  range?: readonly [number, number];
  label: string;
}) {
  const path = sparklinePath(values, width, height - 2, range);
  return (
    <svg
      className={ui["sparkline"]}
      preserveAspectRatio="none"
      width={width}
      height={height}
      viewBox={`0 -1 ${width} ${height}`}
      role="img"
      aria-label={label}
    >
      <path d={path} />
    </svg>
  );
}

/** A search field: what is typed counts on Enter, and at once where it was emptied. */
export function SearchField({
  label,
  placeholder,
  text: searched,
  onSearch,
}: {
  label: string;
  placeholder: string;
  text: string;
  onSearch: (text: string) => void;
}) {
  const id = useId();
  const [text, setText] = useState(searched);
  useEffect(() => setText(searched), [searched]);
  return (
    <form
      className={ui["field"]}
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        onSearch(text);
      }}
    >
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="search"
        value={text}
        placeholder={placeholder}
        onChange={(event) => {
          setText(event.target.value);
          if (event.target.value === "") onSearch("");
        }}
      />
    </form>
  );
}
