for (const pair of document.querySelectorAll(".pair")) {
  const label = pair.querySelector("label"), range = pair.querySelector("input");
  const show = () => pair.style.setProperty("--at", range.value + "%");
  pair.classList.add("live");
  label.hidden = false;
  range.addEventListener("input", show);
  show();
}
