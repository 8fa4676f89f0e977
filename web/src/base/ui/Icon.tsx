/** A small set of line icons, drawn on a 16 × 16 grid. */

const PATHS = {
  grip: "M6 4h.01M10 4h.01M6 8h.01M10 8h.01M6 12h.01M10 12h.01",
  settings: "M2.5 5h6M12 5h1.500M2.500 11h1.500M7.500 11h6M10.200 3.500v3M5.800 9.500v3",
  clock: "M8 13.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM8 4.800V8l2.300 1.600",
  back: "M11 3.200v9.600L3.200 8z",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3.500v9M3.500 8h9",
  search: "M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.300 10.300 13.500 13.500",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  play: "M5 3.200v9.600L12.800 8z",
  sun:
    "M8 10.800a2.800 2.800 0 1 0 0-5.600 2.800 2.800 0 0 0 0 5.600zM8 1.500v1.200M8 13.300v1.200" +
    "M1.500 8h1.200M13.300 8h1.200M3.400 3.400l.8.8M11.800 11.800l.8.8M12.600 3.400l-.8.8M4.200 11.800l-.8.8",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z",
  panel: "M2.500 3.500h11v9h-11zM6.500 3.500v9",
  fit: "M2.500 6V2.500H6M10 2.500h3.500V6M13.500 10v3.500H10M6 13.500H2.500V10",
  minus: "M3.500 8h9",
  left: "M9.500 4 5.500 8 9.500 12",
  right: "M6.500 4 10.500 8 6.500 12",
  down: "M4 6.500 8 10.500 12 6.500",
  chevron_up: "M4 9.500 8 5.500 12 9.500",
  save: "M3 2.500h8l2 2v9H3zM5.500 2.500v3h4v-3M5.500 13.500V9h5v4.500",
  share: "M6.500 9.500 12.500 3.500M8.500 3h4.500v4.500M11.500 9.500v3.500h-8.500v-8.500h3.500",
  download: "M8 2.500v7M4.800 6.500 8 9.700l3.200-3.200M3 13h10",
  trash: "M3 4.500h10M6.500 4.500v-2h3v2M4.500 4.500l.6 9h5.800l.6-9",
  pack: "M2.500 2.500h5v6h-5zM9 2.500h4.500v3H9zM9 7h4.500v6.500H9zM2.500 10h5v3.500h-5z",
  fill_x: "M2.500 3.500h11v2h-11zM2.500 7h7v2h-7zM2.500 10.500h4v2h-4z",
  fill_y: "M3.500 13.500v-11h2v11zM7 13.500v-7h2v7zM10.500 13.500v-4h2v4z",
  list_x:
    "M2.500 3.500h3v3.500h-3zM6.700 3.500h3v3.500h-3z" +
    "M10.900 3.500h2.600v3.500h-2.600zM2.500 9h3v3.500h-3zM6.700 9h3v3.500h-3z",
  list_y:
    "M3.500 2.500h3.500v3h-3.500zM3.500 6.700h3.500v3h-3.500z" +
    "M3.500 10.900h3.500v2.600h-3.500zM9 2.500h3.500v3h-3.500zM9 6.700h3.500v3h-3.500z",
  up: "M8 13V3.500M4.500 7 8 3.500 11.500 7",
  arrow_down: "M8 3v9.500M4.500 9 8 12.500 11.500 9",
  target:
    "M8 12.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM8 1.500v3M8 11.500v3M1.500 8h3M11.500 8h3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  const thick = name === "grip" ? 2.2 : 1.3;
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={thick}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
