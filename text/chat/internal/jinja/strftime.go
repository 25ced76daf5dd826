package jinja

import (
	"time"
	"unicode/utf8"
)

// strftime adds what the C library's function writes in the C locale, with glibc's flags.
func (b *buf) strftime(t time.Time, format string) {
	num := func(n, width int, fill, flag byte) {
		switch flag {
		case '-':
			width = 0
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		}
		b.str(b.r.pad(b.r.intString(int64(n)), width, charOf(fill), true, false))
	}
	word := func(s string, flag byte) {
		if flag == '^' || flag == '#' {
			s = b.r.upper(s)
		}
		b.str(s)
	}
	for i := 0; i < len(format); i++ {
		b.r.work(1)
		if format[i] != '%' {
			b.byte(format[i])
			continue
		}
		b.r.work(16 * nodeWork)
		from := i
		i++
		flag := byte(0)
		for i < len(format) && isOneOf(format[i], "-_0^#") {
			b.r.work(1)
			flag = format[i]
			i++
		}
		if i >= len(format) {
			b.str(format[from:])
			break
		}
		hour12 := (t.Hour()+11)%12 + 1
		year, week := t.ISOWeek()
		wday := int(t.Weekday())
		switch c := format[i]; c {
		case 'a':
			word(t.Format("Mon"), flag)
		case 'A':
			word(t.Format("Monday"), flag)
		case 'b', 'h':
			word(t.Format("Jan"), flag)
		case 'B':
			word(t.Format("January"), flag)
		case 'c':
			b.str(t.Format("Mon Jan _2 15:04:05 2006"))
		case 'C':
			num(t.Year()/100, 2, '0', flag)
		case 'd':
			num(t.Day(), 2, '0', flag)
		case 'D', 'x':
			b.str(t.Format("01/02/06"))
		case 'e':
			num(t.Day(), 2, ' ', flag)
		case 'f':
			num(t.Nanosecond()/1000, 6, '0', 0)
		case 'F':
			b.str(t.Format("2006-01-02"))
		case 'g':
			num(year%100, 2, '0', flag)
		case 'G':
			num(year, 4, '0', flag)
		case 'H':
			num(t.Hour(), 2, '0', flag)
		case 'I':
			num(hour12, 2, '0', flag)
		case 'j':
			num(t.YearDay(), 3, '0', flag)
		case 'k':
			num(t.Hour(), 2, ' ', flag)
		case 'l':
			num(hour12, 2, ' ', flag)
		case 'm':
			num(int(t.Month()), 2, '0', flag)
		case 'M':
			num(t.Minute(), 2, '0', flag)
		case 'n':
			b.byte('\n')
		case 'p':
			s := t.Format("PM")
			if flag == '#' {
				s = b.r.lower(s)
			}
			b.str(s)
		case 'P':
			b.str(t.Format("pm"))
		case 'r':
			b.str(t.Format("03:04:05 PM"))
		case 'R':
			b.str(t.Format("15:04"))
		case 's':
			b.int(t.Unix())
		case 'S':
			num(t.Second(), 2, '0', flag)
		case 't':
			b.byte('\t')
		case 'T', 'X':
			b.str(t.Format("15:04:05"))
		case 'u':
			num((wday+6)%7+1, 1, '0', flag)
		case 'U':
			num((t.YearDay()+6-wday)/7, 2, '0', flag)
		case 'V':
			num(week, 2, '0', flag)
		case 'w':
			num(wday, 1, '0', flag)
		case 'W':
			num((t.YearDay()+6-(wday+6)%7)/7, 2, '0', flag)
		case 'y':
			num(t.Year()%100, 2, '0', flag)
		case 'Y':
			num(t.Year(), 0, '0', flag)
		case 'z', 'Z': // datetime.now() has no zone
		case '%':
			b.byte('%')
		default:
			b.str(format[from:i])
			_, n := utf8.DecodeRuneInString(format[i:])
			b.str(format[i : i+n])
			i += n - 1
		}
	}
}
