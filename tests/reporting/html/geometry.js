// An expression: the geometry of every chart of a report, as it is laid out. Lengths are px of the screen.
(() => {
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const box = (element) => {
    const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
    return { left, right, top, bottom, width, height };
  };
  const title = (element) => element.querySelector("title")?.textContent ?? "";
  const classAt = (x, y) => document.elementFromPoint(x, y)?.getAttribute("class") ?? "";
  const center = (element) => element.scrollIntoView({ block: "center", behavior: "instant" });

  const histogram = (svg) => ({
    name: svg.getAttribute("aria-label"),
    box: box(svg),
    axis: box(svg.querySelector(".axis")),
    bars: all(svg, "rect").map((bar) => ({ ...box(bar), title: title(bar) })),
    texts: all(svg, "text").map((text) => ({ ...box(text), text: text.textContent })),
  });

  const curve = (path) => {
    const matrix = path.getScreenCTM();
    const length = path.getTotalLength();
    const points = [...Array(4001).keys()].map((i) => path.getPointAtLength((length * i) / 4000).matrixTransform(matrix));
    return { name: title(path), colour: getComputedStyle(path).stroke, points: points.map((p) => [p.x, p.y]) };
  };

  const plot = (card) => {
    center(card);
    return {
      name: card.querySelector("h3").textContent,
      box: box(card.querySelector(".plot")),
      axis: all(card, ".axis span").map((span) => ({ ...box(span), text: span.textContent })),
      limit: card.querySelector(".plot .limit") && box(card.querySelector(".plot .limit")),
      curves: all(card, ".plot .curve").map(curve),
      keys: all(card, ".legends li").map((item) => ({
        name: (item.querySelector("bdi") ?? item).textContent.trim(),
        colour: item.querySelector(".curve") && getComputedStyle(item.querySelector(".curve")).stroke,
      })),
    };
  };

  const lane = (svg) => {
    center(svg);
    const { left, top, width, height } = box(svg);
    const at = (i, y) => classAt(left + ((i + 0.5) * width) / 400, top + (y * height) / 12);
    const slices = [...Array(400).keys()];
    return {
      name: svg.getAttribute("aria-label"),
      upper: slices.map((i) => at(i, 1.5)),
      middle: slices.map((i) => at(i, 6)),
      lower: slices.map((i) => at(i, 10.5)),
    };
  };

  const phases = (bar) => {
    const inner = bar.clientWidth;
    return {
      name: bar.previousElementSibling.textContent,
      parts: all(bar, "span").map((span) => ({ kind: span.className, share: box(span).width / inner })),
      height: box(bar).height,
    };
  };

  const meter = (span) => ({
    name: (span.closest("tr, article").querySelector("th, h3, h4") ?? span).textContent.trim(),
    label: span.closest("dl") ? span.parentElement.previousElementSibling.textContent : span.getAttribute("aria-label"),
    share: box(span.querySelector("i")).width / box(span).width,
    height: box(span.querySelector("i")).height,
    width: box(span).width,
  });

  return {
    histograms: all(document, "svg.chart").map(histogram),
    plots: all(document, "figure.card").filter((card) => card.querySelector(".plot")).map(plot),
    lanes: all(document, "svg.lane").map(lane),
    phases: all(document, ".bars [role=img]").map(phases),
    meters: all(document, ".meter").map(meter),
    steps: all(document, "th.step bdi, th .step").map((name) => ({ name: name.textContent, lines: name.getClientRects().length })),
    heights: all(document, "th.step bdi, th .step").map((name) => box(name).height),
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
})()
