/** Drag and drop of layers: a thin layer over pragmatic-drag-and-drop. */

import { combine } from "@atlaskit/pragmatic-drag-and-drop/combine";
import {
  draggable,
  dropTargetForElements,
} from "@atlaskit/pragmatic-drag-and-drop/element/adapter";
import type { RefObject } from "react";
import { useEffect, useState } from "react";

/** What is being dragged: a layer of the view, or an attribute that may become one. */
export type Dragged = { layer: number } | { attribute: string };

/** Make an element draggable, by a handle of its own if it has one. */
export function useDrag(
  element: RefObject<HTMLElement | null>,
  handle: RefObject<HTMLElement | null> | null,
  dragged: Dragged,
): boolean {
  const [active, setActive] = useState(false);
  const key = JSON.stringify(dragged);
  useEffect(() => {
    if (!element.current) return;
    return draggable({
      element: element.current,
      ...(handle?.current ? { dragHandle: handle.current } : {}),
      getInitialData: () => ({ marey: key }),
      onDragStart: () => setActive(true),
      onDrop: () => setActive(false),
    });
  }, [element, handle, key]);
  return active;
}

/** Let something be dropped on an element; says whether it would land before or after it. */
export function useDrop(
  element: RefObject<HTMLElement | null>,
  drop: (dragged: Dragged, after: boolean) => void,
): "before" | "after" | null {
  const [edge, setEdge] = useState<"before" | "after" | null>(null);
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const sideOf = (clientY: number) => {
      const box = target.getBoundingClientRect();
      return clientY > box.top + box.height / 2 ? "after" : "before";
    };
    return combine(
      dropTargetForElements({
        element: target,
        canDrop: ({ source }) => typeof source.data["marey"] === "string",
        onDrag: ({ location }) => setEdge(sideOf(location.current.input.clientY)),
        onDragLeave: () => setEdge(null),
        onDrop: ({ source, location }) => {
          setEdge(null);
          drop(
            JSON.parse(source.data["marey"] as string) as Dragged,
            sideOf(location.current.input.clientY) === "after",
          );
        },
      }),
    );
  }, [element, drop]);
  return edge;
}
