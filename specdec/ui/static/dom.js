// Small helpers to build the document. Text goes in as textContent or attributes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("p", { class: "why", "aria-live": "polite", onclick: f }, child, "text", ...) */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Set text only where it differs, so that nothing is laid out or spoken again for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === false || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
}

const SHAPES = {
  back: "M15 3v14L4 10z",
  step: "M5 3v14l11-7z",
  first: "M3 3h3v14H3zM17 3v14L7 10z",
  last: "M14 3h3v14h-3zM3 3v14l10-7z",
  play: "M4 2v16l14-8z",
  pause: "M4 3h4v14H4zM12 3h4v14h-4z",
  again: "M10 3a7 7 0 1 0 7 7h-2.4A4.6 4.6 0 1 1 10 5.4V8l5-3.8L10 .5z",
  live:
    "M10 6a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 3l1.5 1.5a8 8 0 0 0 0 11L4 17" +
    "A10 10 0 0 1 4 3zm12 0a10 10 0 0 1 0 14l-1.5-1.5a8 8 0 0 0 0-11z",
  tape:
    "M5 5a5 5 0 1 0 3.9 8h2.2A5 5 0 1 0 15 5a5 5 0 0 0-3.9 8H8.9A5 5 0 0 0 5 5z" +
    "m0 2.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zm10 0a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 20 20",
    class: "icon",
    "aria-hidden": "true",
    fill: "currentColor",
  })) {
    svg.setAttribute(key, value);
  }
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[name]);
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  return svg;
}
