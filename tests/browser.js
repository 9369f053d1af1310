// What is wrong with the page that is open: run by browser.py, gives {overflow, cut, overlapping, faint}.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((c) => c / 255);
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const light = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * light(c[0]) + 0.7152 * light(c[1]) + 0.0722 * light(c[2]);
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const short = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);
  const inPicture = (element) => element instanceof SVGElement;

  // Every piece of text that shows, with its box.
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("title, style, script, defs, noscript")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of inPicture(element) ? [element.getBoundingClientRect()] : range.getClientRects())
      if (box.width > 0 && box.height > 0) texts.push({ node, element, box, text: short(node.data) });
  }

  const cut = [], overlapping = [], faint = [];
  for (const { element, box, text } of texts) {
    if (inPicture(element)) {
      const frame = element.closest("svg:not(svg svg)").getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) cut.push(text);
    } else if (["hidden", "clip"].includes(getComputedStyle(element).overflowX) &&
               element.scrollWidth > element.clientWidth + 1) cut.push(text);
  }

  const byTop = [...texts].sort((a, b) => a.box.top - b.box.top);
  byTop.forEach((one, i) => {
    for (let j = i + 1; j < byTop.length && byTop[j].box.top < one.box.bottom - 2; j++) {
      const other = byTop[j];
      if (one.node === other.node) continue;
      if (inPicture(one.element) && one.element.parentElement === other.element) continue; // a tspan
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (wide > 2 && high > 3) overlapping.push(`${one.text} | ${other.text}`);
    }
  });

  const opaque = (element) => {
    const style = getComputedStyle(element), shape = element instanceof SVGGeometryElement;
    if (shape && style.fill === "none") return null;
    const colour = rgba(shape ? style.fill : style.backgroundColor);
    if (shape) colour[3] *= style.fillOpacity * style.opacity;
    return colour[3] > 0 ? colour : null;
  };
  const ancestors = (element) => (element ? [element, ...ancestors(element.parentElement)] : []);
  for (const { element, box, text } of texts) {
    const style = getComputedStyle(element);
    const under = inPicture(element)
      ? document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2)
      : ancestors(element);
    const below = [];
    for (const each of under) {
      const colour = opaque(each);
      if (colour) below.push(colour);
      if (colour && colour[3] === 1) break;
    }
    const ground = below.reduceRight((ground, top) => over(top, ground), rgba("Canvas").slice(0, 3));
    const ink = over(rgba(inPicture(element) ? style.fill : style.color), ground);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const found = contrast(ink, ground);
    if (found < (large ? 3 : 4.5)) faint.push(`${text}: ${found.toFixed(1)}`);
  }

  const overflow = Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth);
  return { overflow, cut, overlapping, faint };
}
