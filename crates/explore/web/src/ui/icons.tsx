// Icons of one stroke, 18 px, in the text's colour.
const paths = {
  first: "M5 4v10 M14 4 8 9l6 5",
  back: "M12 4 6 9l6 5",
  play: "M6 3.500v11l9-5.500z",
  pause: "M6 4v10 M12 4v10",
  next: "M6 4l6 5-6 5",
  last: "M4 4l6 5-6 5 M13 4v10",
  sun: "M9 1.500v2 M9 14.500v2 M1.500 9h2 M14.500 9h2 M3.700 3.700l1.400 1.4 M12.900 12.900l1.400 1.4 M3.700 14.300l1.400-1.4 M12.900 5.100l1.400-1.4 M9 6a3 3 0 1 0 0 6 3 3 0 1 0 0-6",
  moon: "M14.500 10.800A6 6 0 0 1 7.2 3.500a6 6 0 1 0 7.3 7.300z",
  link: "M7.500 10.5 10.5 7.5 M8 5l1.500-1.500a3.200 3.2 0 0 1 4.5 4.500L12.500 9.5 M10 13l-1.5 1.500A3.200 3.2 0 0 1 4 10L5.500 8.5",
  help: "M6.700 6.600a2.400 2.4 0 1 1 3.5 2.100c-.8.400-1.2.9-1.2 1.8 M9 13.200v.1",
  close: "M4.500 4.500l9 9 M13.500 4.500l-9 9",
  plus: "M9 4v10 M4 9h10",
  minus: "M4 9h10",
  fit: "M3 7V3h4 M11 3h4v4 M15 11v4h-4 M7 15H3v-4",
  down: "M4.500 7 9 11.5 13.5 7",
  right: "M7 4.5 11.5 9 7 13.5",
} as const;

export const Icon = ({ name, size = 18 }: { name: keyof typeof paths; size?: number }) => (
  <svg width={size} height={size} viewBox="0 0 18 18" aria-hidden="true" fill="none" stroke="currentColor"
    stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round">
    <path d={paths[name]} />
  </svg>
);

export const Mark = () => (
  <svg width="24" height="24" viewBox="0 0 32 32" aria-hidden="true" fill="none" stroke-width="3.2"
    stroke-linecap="round" stroke-linejoin="round">
    <path class="mark-forward" d="M5 11h17 M18 6 24 11l-6 5" />
    <path class="mark-reverse" d="M27 21H10 M14 16 8 21l6 5" />
  </svg>
);
