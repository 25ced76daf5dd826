package jinja

var dictMethods = map[string]method{
	"keys":   view("keys", "dict_keys"),
	"values": view("values", "dict_values"),
	"items":  view("items", "dict_items"),
	"get": func(r *run, self Value, a *args) Value {
		v := a.bind("get", 1, "key", "default")
		if x, ok := r.get(self.(*Dict), v[0]); ok {
			return x
		}
		if v[1] == missing {
			return nil
		}
		return v[1]
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		return r.clone(self.(*Dict))
	},
}

func view(name, kind string) method {
	return func(_ *run, self Value, a *args) Value {
		a.bind(name, 0)
		return &View{self.(*Dict), kind}
	}
}

var listMethods = map[string]method{
	"count": func(r *run, self Value, a *args) Value {
		v := a.bind("count", 1, "value")
		n := int64(0)
		for _, x := range r.collect(self) {
			r.step()
			if identical(x, v[0]) || r.equal(x, v[0]) {
				n++
			}
		}
		return n
	},
	"index": func(r *run, self Value, a *args) Value {
		v := a.bind("index", 1, "value", "start", "stop")
		items := r.collect(self)
		from, to := 0, len(items)
		for i, p := range []*int{&from, &to} {
			if v[i+1] == missing {
				continue
			}
			if *p = wantInt(v[i+1]); *p < 0 {
				*p = max(0, *p+len(items))
			}
		}
		for i := from; i < min(to, len(items)); i++ {
			r.step()
			if identical(items[i], v[0]) || r.equal(items[i], v[0]) {
				return int64(i)
			}
		}
		throw("ValueError", "%s is not in list", r.repr(v[0], 0))
		return nil
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		return &List{r.joined(r.collect(self))}
	},
}
