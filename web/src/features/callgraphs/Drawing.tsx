import { useEffect, useRef, useState } from "react";
import { useTheme } from "@/base/theme";

type Draw = (context: CanvasRenderingContext2D, width: number) => void;

/** A canvas as wide as its place, drawn again whenever what it shows changes. */
export function Drawing({
  height,
  draw,
  label,
  testId,
  onPoint,
  onPress,
  onDouble,
  onKey,
  onLasso,
}: {
  height: number;
  draw: Draw;
  label: string;
  testId: string;
  onPoint?: (x: number, y: number) => void;
  onPress?: (x: number, y: number) => void;
  onDouble?: (x: number, y: number) => void;
  onKey?: (key: string) => boolean;
  /** The line drawn with the button held; told at its end. */
  onLasso?: (line: { x: number; y: number }[]) => void;
}) {
  const ref = useRef<HTMLCanvasElement | null>(null);
  const [width, setWidth] = useState(0);
  const { theme } = useTheme();
  const line = useRef<{ x: number; y: number }[] | null>(null);
  useEffect(() => {
    const place = ref.current?.parentElement;
    if (!place) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(place);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const canvas = ref.current;
    if (!canvas || width === 0) return;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.max(1, Math.round(height * scale));
    const context = canvas.getContext("2d");
    context?.setTransform(scale, 0, 0, scale, 0, 0);
    const began = performance.now();
    if (context) draw(context, width);
    canvas.dataset["drawMs"] = (performance.now() - began).toFixed(2);
  }, [draw, height, width, theme]);
  return (
    <div>
      <canvas
        ref={ref}
        role="application"
        tabIndex={0}
        aria-label={label}
        data-testid={testId}
        style={{ width: "100%", height, display: "block", touchAction: onLasso ? "none" : "auto" }}
        onPointerMove={({ nativeEvent: at }) => {
          onPoint?.(at.offsetX, at.offsetY);
          line.current?.push({ x: at.offsetX, y: at.offsetY });
        }}
        onPointerLeave={() => onPoint?.(-1, -1)}
        onPointerDown={({ nativeEvent: at }) => {
          if (onLasso) line.current = [{ x: at.offsetX, y: at.offsetY }];
        }}
        onPointerUp={() => {
          const drawn = line.current;
          line.current = null;
          if (drawn && drawn.length > 4) onLasso?.(drawn);
        }}
        onClick={({ nativeEvent: at }) => onPress?.(at.offsetX, at.offsetY)}
        onDoubleClick={({ nativeEvent: at }) => onDouble?.(at.offsetX, at.offsetY)}
        onKeyDown={(event) => {
          if (onKey?.(event.key)) event.preventDefault();
        }}
      />
    </div>
  );
}

/** A colour token of the page. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The letters of charts. */
export function chartFont(): string {
  return `11.5px ${token("--font") || "sans-serif"}`;
}
