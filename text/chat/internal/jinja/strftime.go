package jinja

import "time"

// strftime adds what the C library's function writes in the C locale, of the directives that templates use.
func (b *buf) strftime(t time.Time, format string) {
	for i := 0; i < len(format); i++ {
		b.r.work(1)
		if format[i] != '%' {
			b.byte(format[i])
			continue
		}
		b.r.work(16 * nodeWork)
		padded := true
		if i++; i < len(format) && format[i] == '-' {
			padded = false
			i++
		}
		num := func(n, width int, fill string) {
			if !padded {
				width = 0
			}
			b.str(b.r.formatted(int64(n), &spec{fill: fill, width: width, prec: -1, verb: 'd'}))
		}
		directive := byte('%')
		if i < len(format) {
			directive = format[i]
		}
		switch directive {
		case 'a':
			b.str(t.Format("Mon"))
		case 'A':
			b.str(t.Format("Monday"))
		case 'b', 'h':
			b.str(t.Format("Jan"))
		case 'B':
			b.str(t.Format("January"))
		case 'd':
			num(t.Day(), 2, "0")
		case 'e':
			num(t.Day(), 2, " ")
		case 'F':
			b.str(t.Format("2006-01-02"))
		case 'H':
			num(t.Hour(), 2, "0")
		case 'I':
			num((t.Hour()+11)%12+1, 2, "0")
		case 'j':
			num(t.YearDay(), 3, "0")
		case 'm':
			num(int(t.Month()), 2, "0")
		case 'M':
			num(t.Minute(), 2, "0")
		case 'p':
			b.str(t.Format("PM"))
		case 'S':
			num(t.Second(), 2, "0")
		case 'T', 'X':
			b.str(t.Format("15:04:05"))
		case 'y':
			num(t.Year()%100, 2, "0")
		case 'Y':
			num(t.Year(), 0, "0")
		case '%':
			b.byte('%')
		default:
			throw("ValueError", "%%%c in a date is not supported", directive)
		}
	}
}
