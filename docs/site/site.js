// What the theme leaves out for screen readers and keyboards: a name for the search, and boxes that can be scrolled by keys.
const sizes = new ResizeObserver((changed) => {
  changed.forEach(({ target }) => {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
    else target.removeAttribute("tabindex")
  })
})
function complete() {
  document.querySelectorAll('.md-search[role="dialog"]').forEach((search) => search.setAttribute("aria-label", "Search"))
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((box) => sizes.observe(box))
}
complete()
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
